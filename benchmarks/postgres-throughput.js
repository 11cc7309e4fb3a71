// How many fresh operations per second does Latchkey do on Postgres, next to the plain pool, pgbench and a peer?
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { answerWhenStarted, ms, ratioBar, times, whole } from "./lib/answer.js";
import { contendersApart } from "./lib/apart.js";
import { timesAsFast } from "./lib/closed-rows.js";
import { pgbenchScript, preparePgbench } from "./lib/contenders.js";
import { barPlot } from "./lib/plot.js";
import { findPgbench, runPgbench, withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { makeRoom } from "./lib/room.js";
import { interleave, medianOf, turns } from "./lib/rounds.js";
import { rounds, seconds } from "./lib/settings.js";

/** @typedef {import("./lib/load.js").ClosedSample} ClosedSample */
/** @typedef {{ contender: string, callers: number, measure: () => Promise<ClosedSample> }} Turn */

const ours = "Latchkey";
const oursPlain = "Latchkey, groupCommit: false";
const oursInUse = "Latchkey, on a table in use";
const poolInUse = "pg pool, on a table in use";
const pool = "pg pool of 20, two statements";
const preparedPool = "pg pool of 20, two prepared statements";
const floor = "the least that gathers: no engine, three columns";
const peer = "@node-idempotency's statements, UNLOGGED as it is (stand-in)";
const peerWithCore = "@node-idempotency/core, UNLOGGED as it is (stand-in store)";
const durablePeer = "@node-idempotency's statements, logged (stand-in)";
const pgbenchName = "pgbench, the pool's statements prepared";
const pgbenchClients = [16, 32, 64];

export function run() {
  return withPostgres((server) =>
    withDatabase(server, (url) => withDatabase(server, (usedUrl) => measure(url, usedUrl))),
  );
}

/**
 * @param {string} url
 * @param {string} usedUrl of a database whose tables are to have room
 */
async function measure(url, usedUrl) {
  await makeRoom(usedUrl, roomForOperations);
  const inUse = await contendersApart(usedUrl, { [poolInUse]: "pool", [oursInUse]: "latchkey" });
  const onNewTables = await contendersApart(url, {
    [pool]: "pool",
    [preparedPool]: "preparedPool",
    [floor]: "floor",
    [ours]: "latchkey",
    [oursPlain]: "latchkeyPlain",
    [peer]: "nodeIdempotency",
    [durablePeer]: "nodeIdempotencyLogged",
    [peerWithCore]: "nodeIdempotencyCore",
  });
  const contenders = { ...onNewTables, ...inUse };
  const pgbench = findPgbench();
  const folder = await mkdtemp(join(tmpdir(), "latchkey-bench-"));
  const turnsOf = (/** @type {readonly string[]} */ names, /** @type {readonly number[]} */ callerCounts) =>
    callerCounts.flatMap((callers) =>
      Object.entries(contenders)
        .filter(([contender]) => names.includes(contender))
        .map(([contender, { fresh }]) => ({ contender, callers, measure: () => fresh({ callers }) })),
    );
  try {
    // Before the crowds: who is several times as fast would go on with a table that is several times as large.
    const few = turnsOf([pool, ours], [1, 8]);
    const many = [
      ...turnsOf(Object.keys(contenders), [64]),
      ...turnsOf([pool, ours, poolInUse, oursInUse, peer], [256]),
    ];
    if (pgbench !== undefined)
      many.push(...(await pgbenchTurns(pgbench, url, join(folder, "two-statements.sql"))));
    const progress = createProgress(roundsOfFew * few.length + turns(many.length));
    // The same for those on either tables: whose code was warmed by crowds alone needs more of the processor for them.
    for (const name of [pool, ours, poolInUse, oursInUse]) {
      await contenders[name]?.warmUpAlone();
      await contenders[name]?.warmUp({ callers: 8 });
    }
    const samples = await interleave(byName(few), progress, { rounds: roundsOfFew });
    for (const { warmUp } of Object.values(contenders)) await warmUp({ callers: 64 });
    return report([...few, ...many], { ...samples, ...(await interleave(byName(many), progress)) });
  } finally {
    for (const { close } of Object.values(contenders)) await close();
    await rm(folder, { recursive: true });
  }
}

const secondsOfTurns = rounds * (seconds + Math.min(0.4, seconds));

/** More than the turns with 64 and 256 callers have been seen to come to. */
const roomForOperations = {
  latchkey: Math.ceil(100_000 * secondsOfTurns),
  pool: Math.ceil(25_000 * secondsOfTurns),
};

/** What is asked of few callers is closer to what is measured, so that more rounds are needed to tell. */
const roundsOfFew = 2 * rounds;

const byName = (/** @type {readonly Turn[]} */ plan) =>
  Object.fromEntries(plan.map((turn) => [`${turn.contender}: ${turn.callers}`, turn.measure]));

/**
 * @param {string} pgbench
 * @param {string} url
 * @param {string} script
 * @returns {Promise<Turn[]>}
 */
async function pgbenchTurns(pgbench, url, script) {
  await preparePgbench(url);
  await writeFile(script, pgbenchScript);
  return pgbenchClients.map((clients) => ({
    contender: pgbenchName,
    callers: clients,
    measure: async () => ({
      rate: await runPgbench({ pgbench, url, script, clients, seconds }),
      p50: Number.NaN,
      p99: Number.NaN,
      cpu: Number.NaN,
    }),
  }));
}

/**
 * @param {readonly Turn[]} plan
 * @param {Record<string, ClosedSample[]>} samples
 * @returns {import("./lib/answer.js").Answer}
 */
function report(plan, samples) {
  const rate = (/** @type {string} */ contender, /** @type {number} */ callers) =>
    medianOf(samples[`${contender}: ${callers}`], "rate");
  const timesAsFastAs = (/** @type {string} */ contender, /** @type {number} */ callers) =>
    timesAsFast(samples, { ours, contender, callers });
  const pgbenchBest = Math.max(
    ...plan.filter((turn) => turn.contender === pgbenchName).map((turn) => rate(pgbenchName, turn.callers)),
  );
  const hasPgbench = Number.isFinite(pgbenchBest);
  const against = (/** @type {number} */ callers, /** @type {number} */ atLeast) =>
    ratioBar(`fresh keys, ${callers} ${callers === 1 ? "caller" : "callers"}: the pool`, {
      rate: timesAsFastAs(pool, callers),
      of: 1,
      atLeast,
    });
  const bars = [
    against(1, 0.95),
    against(8, 1.5),
    against(64, 5),
    against(256, 7),
    ...[64, 256].map((callers) =>
      ratioBar(`fresh keys, ${callers} callers, on tables in use: the pool`, {
        rate: timesAsFast(samples, { ours: oursInUse, contender: poolInUse, callers }),
        of: 1,
        atLeast: callers === 64 ? 5 : 7,
      }),
    ),
    ...[64, 256].map((callers) =>
      ratioBar(`fresh keys, ${callers} callers: what @node-idempotency's store sends`, {
        rate: timesAsFastAs(peer, callers),
        of: 1,
        atLeast: 8,
      }),
    ),
    ratioBar("fresh keys, 64 callers: the same through @node-idempotency/core", {
      rate: timesAsFastAs(peerWithCore, 64),
      of: 1,
      atLeast: 8,
    }),
  ];
  if (hasPgbench) {
    // pgbench has no callers beyond its clients, so its best is held against our best.
    const best = Math.max(rate(ours, 64), rate(ours, 256));
    bars.push(
      ratioBar("fresh keys, best of 64 and 256 callers: the best pgbench", {
        rate: best,
        of: pgbenchBest,
        atLeast: 4,
      }),
    );
  }
  return {
    tables: [
      {
        title: "Fresh operations per second on Postgres (reserve + complete, 300-byte responses, UUID keys)",
        columns: [
          "contender",
          "callers",
          "per second",
          "p50",
          "p99",
          "client CPU per operation",
          "Latchkey is",
        ],
        rows: plan.map(({ contender, callers }) => {
          const sample = samples[`${contender}: ${callers}`];
          const isTimed = contender !== pgbenchName;
          const other = rate(contender, callers);
          const ratio = isTimed
            ? timesAsFastAs(contender, callers)
            : Math.max(rate(ours, 64), rate(ours, 256)) / other;
          return [
            contender,
            String(callers),
            whole(other),
            isTimed ? ms(medianOf(sample, "p50")) : "",
            isTimed ? ms(medianOf(sample, "p99")) : "",
            isTimed ? `${whole(medianOf(sample, "cpu"))} µs` : "",
            contender === ours ? "" : times(ratio),
          ];
        }),
      },
    ],
    bars,
    plots: [
      {
        file: "postgres-throughput.svg",
        title: "Fresh operations per second on Postgres",
        svg: barPlot({
          title: "Fresh operations on Postgres, durable unless marked",
          unit: "operations per second (and of the pool's)",
          bars: [
            ...plan
              .filter(({ callers, contender }) => callers >= 64 && contender !== pgbenchName)
              .map(({ contender, callers }) => ({
                label: `${plotNames[contender]}, ${callers} callers`,
                value: rate(contender, callers),
                note: times(rate(contender, callers) / rate(pool, callers)),
                isOurs: contender === ours || contender === oursInUse,
              })),
            ...(hasPgbench
              ? [
                  {
                    label: "pgbench, its best",
                    value: pgbenchBest,
                    note: times(pgbenchBest / rate(pool, 64)),
                  },
                ]
              : []),
          ],
        }),
      },
    ],
    notes: [
      `The least that gathers, which keeps nothing of what makes a request safe, does ${times(timesAsFast(samples, { ours: floor, contender: peer, callers: 64 }))} what @node-idempotency's store sends: a bar above that is out of reach on this machine.`,
      ...(hasPgbench
        ? []
        : [
            "There is no pgbench on this machine: it comes with the server, as in Debian's package postgresql.",
          ]),
    ],
  };
}

/** @type {Record<string, string>} */
const plotNames = {
  [floor]: "the least that gathers",
  [ours]: "Latchkey",
  [oursPlain]: "Latchkey, no group commit",
  [oursInUse]: "Latchkey, table in use",
  [poolInUse]: "pg pool, table in use",
  [pool]: "pg pool",
  [preparedPool]: "pg pool, prepared",
  [peer]: "peer's statements, UNLOGGED",
  [peerWithCore]: "peer with its core, UNLOGGED",
  [durablePeer]: "peer's statements, logged",
};

await answerWhenStarted(import.meta.url, run);
