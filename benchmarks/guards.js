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
const warmUpSeconds = seconds * 7;
const roundsOf = { postgres: rounds * 6, memory: rounds * 2 };

export function run() {
  return withPostgres((server) => withDatabase(server, measure));
}

/** @param {string} databaseUrl */
async function measure(databaseUrl) {
  const progress = createProgress(guards.length * (roundsOf.postgres + roundsOf.memory));
  const measured = [];
  for (const store of stores) {
    measured.push({ store, samples: await measureOn(store, databaseUrl, progress) });
  }
  return report(measured);
}

/**
 * @param {typeof stores[number]} store
 * @param {string} databaseUrl
 * @param {ReturnType<typeof createProgress>} progress
 */
async function measureOn(store, databaseUrl, progress) {
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
      { rounds: roundsOf[store] },
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
    bars: measured.flatMap(({ store, samples }) =>
      /** @type {const} */ (["guarded", "metrics"]).map((guard) =>
        shareBar(`Fastify on ${store}, ${names[guard]} switched on: throughput with nothing`, {
          rate: medianRatio(samples[guard], samples.unguarded, "rate"),
          of: 1,
          atLeast: asked[guard],
        }),
      ),
    ),
    notes: [
      `Shares of nothing are medians of ${roundsOf.postgres} comparisons on Postgres and ${roundsOf.memory} in memory, each of two turns of one round; the rest are medians of turns.`,
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
