// What do limits, breaker, encryption, hashed keys, redaction, binding, late arrivals, metrics, traces and logs cost?
import { answerWhenStarted, percent, shareBar, whole } from "./lib/answer.js";
import { httpContender } from "./lib/http.js";
import { withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { interleave, medianOf, turns } from "./lib/rounds.js";

/** @typedef {import("./lib/guards.js").Guards} Guards */

const connections = 64;
const stores = /** @type {const} */ (["postgres", "memory"]);
/** What is to be left of the throughput without them. */
const asked = /** @type {const} */ ({ metrics: 0.97, guarded: 0.9 });
/** @type {Record<Guards, string>} */
const names = {
  unguarded: "nothing",
  metrics: "metrics",
  unsealed: "everything but encryption and hashed keys",
  guarded: "everything",
};
const guards = /** @type {Guards[]} */ (Object.keys(names));

export function run() {
  return withPostgres((server) => withDatabase(server, measure));
}

/** @param {string} databaseUrl */
async function measure(databaseUrl) {
  const plan = stores.flatMap((store) =>
    guards.map((guard) => ({
      name: nameOf(store, guard),
      contender: httpContender({
        framework: "fastify",
        protection: `latchkey-${store}-${guard}`,
        keys: "fresh",
        connections,
        databaseUrl,
      }),
    })),
  );
  try {
    const samples = await interleave(
      Object.fromEntries(plan.map(({ name, contender }) => [name, contender.measure])),
      createProgress(turns(plan.length)),
    );
    return report(samples);
  } finally {
    for (const { contender } of plan) await contender.stop();
  }
}

/**
 * @param {typeof stores[number]} store
 * @param {Guards} guard
 */
function nameOf(store, guard) {
  return `${store}, ${guard}`;
}

/**
 * @param {Record<string, import("./lib/http.js").HttpSample[]>} samples
 * @returns {import("./lib/answer.js").Answer}
 */
function report(samples) {
  const of = (
    /** @type {typeof stores[number]} */ store,
    /** @type {Guards} */ guard,
    /** @type {"rate" | "cpu"} */ quantity,
  ) => medianOf(samples[nameOf(store, guard)], quantity);
  return {
    tables: [
      {
        title: `Fastify, ${connections} connections, fresh keys: what guards and metrics cost`,
        columns: ["store", "switched on", "requests per second", "of nothing", "server CPU per request"],
        rows: stores.flatMap((store) =>
          guards.map((guard) => [
            store,
            names[guard],
            whole(of(store, guard, "rate")),
            guard === "unguarded" ? "" : percent(of(store, guard, "rate") / of(store, "unguarded", "rate")),
            `${whole(of(store, guard, "cpu"))} µs`,
          ]),
        ),
      },
    ],
    bars: stores.flatMap((store) =>
      /** @type {const} */ (["guarded", "metrics"]).map((guard) =>
        shareBar(`Fastify on ${store}, ${names[guard]} switched on: throughput with nothing`, {
          rate: of(store, guard, "rate"),
          of: of(store, "unguarded", "rate"),
          atLeast: asked[guard],
        }),
      ),
    ),
  };
}

await answerWhenStarted(import.meta.url, run);
