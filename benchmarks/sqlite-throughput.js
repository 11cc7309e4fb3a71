// How many fresh operations per second does Latchkey do on a durable SQLite file, next to a transaction for each step?
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { createLatchkey } from "latchkey";
import { sqliteStore } from "latchkey/sqlite";
import Database from "libsql";
import { answerWhenStarted, ratioBar, times } from "./lib/answer.js";
import { closedRows, timesAsFast } from "./lib/closed-rows.js";
import { withoutGroupCommit } from "./lib/contenders.js";
import { closedLoop } from "./lib/load.js";
import { charge, chargeBytes, order } from "./lib/payload.js";
import { barPlot } from "./lib/plot.js";
import { createProgress } from "./lib/progress.js";
import { interleave, medianOf, turns } from "./lib/rounds.js";

const ours = "Latchkey, FULL";
const plain = "libsql, a transaction for each step, FULL";
const callerCounts = [1, 64, 256];

export async function run() {
  const folder = await mkdtemp(join(tmpdir(), "latchkey-bench-"));
  const contenders = {
    [plain]: plainStatements(join(folder, "plain.db")),
    [ours]: latchkeyOn(join(folder, "full.db"), {}),
    "Latchkey, FULL, groupCommit: false": latchkeyOn(join(folder, "single.db"), withoutGroupCommit),
    "Latchkey, NORMAL": latchkeyOn(join(folder, "normal.db"), { synchronous: "normal" }),
  };
  try {
    const plan = callerCounts.flatMap((callers) =>
      Object.entries(contenders)
        .filter(([contender]) => callers === 64 || contender === ours || contender === plain)
        .map(([contender, { operation }]) => ({ contender, callers, operation })),
    );
    const samples = await interleave(
      Object.fromEntries(
        plan.map(({ contender, callers, operation }) => [
          `${contender}: ${callers}`,
          () => closedLoop({ callers, operation }),
        ]),
      ),
      createProgress(turns(plan.length)),
    );
    return report(plan, samples);
  } finally {
    for (const { close } of Object.values(contenders)) await close();
    await rm(folder, { recursive: true });
  }
}

/**
 * @param {string} path
 * @param {object} options
 */
function latchkeyOn(path, options) {
  const database = new Database(path);
  const latchkey = createLatchkey({ store: sqliteStore(database, options), tenant: "single" });
  return {
    operation: () => latchkey.run({ tenant: "acme", key: randomUUID(), input: order }, () => charge),
    async close() {
      await latchkey.close();
      database.close();
    },
  };
}

/**
 * The least that is durable before the handler runs and before the answer is sent.
 *
 * @param {string} path
 */
function plainStatements(path) {
  const database = new Database(path);
  database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
  database.exec("CREATE TABLE plain_records (key TEXT PRIMARY KEY, state TEXT NOT NULL, response BLOB)");
  const reserve = database.prepare(
    "INSERT INTO plain_records (key, state) VALUES (?, 'in_progress') ON CONFLICT DO NOTHING",
  );
  const complete = database.prepare(
    "UPDATE plain_records SET state = 'completed', response = ? WHERE key = ? AND state = 'in_progress'",
  );
  return {
    async operation() {
      const key = randomUUID();
      reserve.run(key);
      await nextTurn(); // The handler: others have their turn.
      complete.run(chargeBytes, key);
    },
    async close() {
      database.close();
    },
  };
}

/**
 * @param {readonly { contender: string, callers: number }[]} plan
 * @param {Record<string, import("./lib/load.js").ClosedSample[]>} samples
 * @returns {import("./lib/answer.js").Answer}
 */
function report(plan, samples) {
  const rate = (/** @type {string} */ contender, /** @type {number} */ callers) =>
    medianOf(samples[`${contender}: ${callers}`], "rate");
  return {
    tables: [
      {
        title: "Fresh operations per second on SQLite (reserve + complete, 300-byte responses, UUID keys)",
        columns: ["contender", "callers", "per second", "p50", "p99", "CPU per operation", `${ours}, is`],
        rows: closedRows(plan, samples, ours),
      },
    ],
    bars: [
      ratioBar("SQLite FULL, 64 callers: a transaction for each step", {
        rate: timesAsFast(samples, { ours, contender: plain, callers: 64 }),
        of: 1,
        atLeast: 10,
      }),
    ],
    plots: [
      {
        file: "sqlite-throughput.svg",
        title: "Fresh operations per second on SQLite",
        svg: barPlot({
          title: "Fresh operations on SQLite, 64 callers",
          unit: "operations per second (and of one by one)",
          bars: plan
            .filter(({ callers }) => callers === 64)
            .map(({ contender }) => ({
              label: contender.replace("a transaction for each step", "one by one"),
              value: rate(contender, 64),
              note: times(rate(contender, 64) / rate(plain, 64)),
              isOurs: contender === ours,
            })),
        }),
      },
    ],
  };
}

await answerWhenStarted(import.meta.url, run);
