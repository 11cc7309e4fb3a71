// How many answers per second are replayed from Postgres?
import { randomUUID } from "node:crypto";
import { answerWhenStarted, ratioBar, whole } from "./lib/answer.js";
import { contendersApart } from "./lib/apart.js";
import { closedRows, timesAsFast } from "./lib/closed-rows.js";
import { withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { interleave, turns } from "./lib/rounds.js";
import { numberOf } from "./lib/settings.js";

/** So many that callers seldom meet at one key: in one process they would share one question. */
const keyCount = numberOf("KEYS", 10_000);
const ours = "Latchkey";
const oursPlain = "Latchkey, groupCommit: false";
const cached = "Latchkey, with a cache in the process";
const pool = "pg pool of 20, one SELECT";
const floor = "the least that gathers: no engine, three columns";
const callerCounts = [64, 256];

export function run() {
  return withPostgres((server) => withDatabase(server, measure));
}

/** @param {string} url */
async function measure(url) {
  const contenders = await contendersApart(url, {
    [pool]: "pool",
    [floor]: "floor",
    [ours]: "latchkey",
    [oursPlain]: "latchkeyPlain",
    [cached]: "latchkeyCached",
    "@node-idempotency's statements (stand-in)": "nodeIdempotency",
  });
  const keys = Array.from({ length: keyCount }, () => randomUUID());
  try {
    for (const [name, { fill, see }] of Object.entries(contenders)) {
      // All Latchkeys have one table, which is filled once.
      if (name !== oursPlain && name !== cached) await fill({ keys });
      // A cache can only hold what it has seen, and code is compiled that has run; one of them would take long to see all.
      await see({ keys: name === oursPlain ? keys.slice(0, 1_000) : keys });
    }
    const plan = callerCounts.flatMap((callers) =>
      Object.entries(contenders)
        .filter(([contender]) => callers === 64 || contender === ours || contender === pool)
        .map(([contender, { replays }]) => ({ contender, callers, replays })),
    );
    const samples = await interleave(
      Object.fromEntries(
        plan.map(({ contender, callers, replays }) => [
          `${contender}: ${callers}`,
          () => replays({ callers, keys }),
        ]),
      ),
      createProgress(turns(plan.length)),
    );
    return report(plan, samples);
  } finally {
    for (const { close } of Object.values(contenders)) await close();
  }
}

/**
 * @param {readonly { contender: string, callers: number }[]} plan
 * @param {Record<string, import("./lib/load.js").ClosedSample[]>} samples
 * @returns {import("./lib/answer.js").Answer}
 */
function report(plan, samples) {
  return {
    tables: [
      {
        title: `Replays per second from Postgres, of ${whole(keyCount)} keys at random`,
        columns: ["contender", "callers", "per second", "p50", "p99", "client CPU per replay", "Latchkey is"],
        rows: closedRows(plan, samples, ours),
      },
    ],
    bars: [
      ...callerCounts.map((callers) => timesThePool(samples, { name: "replays", contender: ours, callers })),
      // Not what one gets without asking for it: it takes an option, and a connection that listens.
      timesThePool(samples, { name: "replays from a cache in the process", contender: cached, callers: 64 }),
    ],
  };
}

/**
 * @param {Record<string, import("./lib/load.js").ClosedSample[]>} samples
 * @param {{ name: string, contender: string, callers: number }} of
 */
function timesThePool(samples, { name, contender, callers }) {
  return ratioBar(`${name}, ${callers} callers: the pool`, {
    rate: timesAsFast(samples, { ours: contender, contender: pool, callers }),
    of: 1,
    atLeast: 6,
  });
}

await answerWhenStarted(import.meta.url, run);
