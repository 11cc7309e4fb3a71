// What do limits, breaker, encryption, hashed keys, redaction, binding, late arrivals, metrics, traces and logs cost?
import { answerWhenStarted, percent, shareBar, whole } from "./lib/answer.js";
import { httpContender } from "./lib/http.js";
import { withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { interleave, medianOf, medianRatio } from "./lib/rounds.js";
import { rounds, seconds } from "./lib/settings.js";

/** @typedef {import("./lib/guards.js").Guards} Guards */
/** @typedef {import("./lib/http.js").HttpSample} HttpSample */

const connections = 64;
const stores = /** @type {const} */ (["postgres", "memory"]);
/** What is to be left of the throughput without them. */
const asked = /** @type {const} */ ({ metrics: 0.97, guarded: 0.9 });
/** @type {Record<Guards, string>} */
const names = {
  unguarded: "nothing",
  metrics: "metrics",
  guarded: "everything",
};
const guards = /** @type {Guards[]} */ (Object.keys(names));

// A few percent are asked about, on machines where the next second may be a third slower. So there are many turns and
// short ones, one store after the other, and each turn is compared with the one of the same round. Before the first one each
// server works until all of its code is compiled: with more code that takes longer, and it is not what is asked about.
const turnSeconds = seconds / 2;
const warmUpSeconds = seconds * 5;
const roundsOfServers = 5;

// Servers that are started alike stay 10 to 14 % apart for as long as they run: what was compiled first, and where it lies in
// memory, is luck. More turns of the same servers only show that luck more exactly, and so all are started anew.
const generationsOf = { postgres: rounds, memory: Math.ceil(rounds / 3) };

export function run() {
  return withPostgres((server) => withDatabase(server, measure));
}

/** @param {string} databaseUrl */
async function measure(databaseUrl) {
  const generations = generationsOf.postgres + generationsOf.memory;
  const progress = createProgress(guards.length * roundsOfServers * generations);
  const measured = [];
  for (const store of stores) {
    const samples = /** @type {Record<Guards, HttpSample[]>} */ ({ unguarded: [], metrics: [], guarded: [] });
    for (let generation = 0; generation < generationsOf[store]; generation += 1) {
      const own = await measureGeneration(store, databaseUrl, progress);
      for (const guard of guards) samples[guard].push(...own[guard]);
    }
    measured.push({ store, samples });
  }
  return report(measured);
}

/**
 * @param {typeof stores[number]} store
 * @param {string} databaseUrl
 * @param {ReturnType<typeof createProgress>} progress
 */
async function measureGeneration(store, databaseUrl, progress) {
  const plan = guards.map((guard) => ({
    guard,
    contender: httpContender({
      framework: "fastify",
      protection: `latchkey-${store}-${guard}`,
      keys: "fresh",
      connections,
      databaseUrl,
      seconds: turnSeconds,
      warmUpSeconds,
    }),
  }));
  const turnOf = /** @type {Record<Guards, () => Promise<HttpSample>>} */ (
    Object.fromEntries(plan.map(({ guard, contender }) => [guard, contender.measure]))
  );
  try {
    return await interleave(
      turnOf,
      { step: (guard) => progress.step(`${store}, ${guard}`) },
      { rounds: roundsOfServers },
    );
  } finally {
    for (const { contender } of plan) await contender.stop();
  }
}

/**
 * @param {readonly { store: typeof stores[number], samples: Record<Guards, HttpSample[]> }[]} measured
 * @returns {import("./lib/answer.js").Answer}
 */
function report(measured) {
  return {
    tables: [
      {
        title: `Fastify, ${connections} connections, fresh keys: what guards and metrics cost`,
        columns: [
          "store",
          "switched on",
          "requests per second",
          "of nothing",
          "server CPU per request",
          "of nothing's",
        ],
        rows: measured.flatMap(({ store, samples }) =>
          guards.map((guard) => [
            store,
            names[guard],
            whole(medianOf(samples[guard], "rate")),
            shareOfNothing(samples, guard, "rate"),
            `${whole(medianOf(samples[guard], "cpu"))} µs`,
            shareOfNothing(samples, guard, "cpu"),
          ]),
        ),
      },
    ],
    // On a store that lasts. Encryption at rest in a memory that forgets guards nothing, and there, with a handler that does
    // nothing, is nothing beside which its time could be small: the table shows what it takes alone.
    bars: measured
      .filter(({ store }) => store === "postgres")
      .flatMap(({ store, samples }) =>
        /** @type {const} */ (["guarded", "metrics"]).map((guard) =>
          shareBar(`Fastify on ${store}, ${names[guard]} switched on: throughput with nothing`, {
            rate: medianRatio(samples[guard], samples.unguarded, "rate"),
            of: 1,
            atLeast: asked[guard],
          }),
        ),
      ),
    notes: [
      `Shares of nothing are medians of ${generationsOf.postgres * roundsOfServers} comparisons on Postgres and ${generationsOf.memory * roundsOfServers} in memory, each of two turns of one round, with servers that were started anew after every ${roundsOfServers}; the rest are medians of turns.`,
    ],
  };
}

/**
 * @param {Record<Guards, HttpSample[]>} samples
 * @param {Guards} guard
 * @param {"rate" | "cpu"} quantity
 */
function shareOfNothing(samples, guard, quantity) {
  return guard === "unguarded" ? "" : percent(medianRatio(samples[guard], samples.unguarded, quantity));
}

await answerWhenStarted(import.meta.url, run);
