// How many requests per second does Fastify answer when every record is durable in Postgres?
import { answerWhenStarted, ms, ratioBar, times, whole } from "./lib/answer.js";
import { httpContender } from "./lib/http.js";
import { withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { interleave, medianOf, turns } from "./lib/rounds.js";

/** @typedef {import("./lib/http.js").Protection} Protection */

const connections = 128;
/** @type {Record<string, Protection>} */
const contenders = {
  "bare Fastify, nothing stored": "bare",
  "two plain statements in hooks": "plain-statements",
  "Latchkey, groupCommit: false": "latchkey-postgres-plain",
  Latchkey: "latchkey-postgres",
};

export function run() {
  return withPostgres((server) => withDatabase(server, measure));
}

/**
 * @param {string} databaseUrl
 * @returns {Promise<import("./lib/answer.js").Answer>}
 */
async function measure(databaseUrl) {
  const servers = Object.entries(contenders).map(([name, protection]) => ({
    name,
    server: httpContender({ framework: "fastify", protection, keys: "fresh", connections, databaseUrl }),
  }));
  try {
    const samples = await interleave(
      Object.fromEntries(servers.map(({ name, server }) => [name, server.measure])),
      createProgress(turns(servers.length)),
    );
    return report(samples);
  } finally {
    for (const { server } of servers) await server.stop();
  }
}

/**
 * @param {Record<string, import("./lib/http.js").HttpSample[]>} samples
 * @returns {import("./lib/answer.js").Answer}
 */
function report(samples) {
  const rate = (/** @type {string} */ name) => medianOf(samples[name], "rate");
  const bar = (/** @type {string} */ name) =>
    ratioBar(`Fastify on Postgres, ${connections} connections, fresh: ${name}`, {
      rate: rate("Latchkey"),
      of: rate(name),
      atLeast: 3,
    });
  return {
    tables: [
      {
        title: `Fastify on Postgres, ${connections} connections, fresh keys`,
        columns: ["contender", "requests per second", "p50", "p99", "server CPU per request", "Latchkey is"],
        rows: Object.keys(contenders).map((name) => [
          name,
          whole(rate(name)),
          ms(medianOf(samples[name], "p50")),
          ms(medianOf(samples[name], "p99")),
          `${whole(medianOf(samples[name], "cpu"))} µs`,
          name === "Latchkey" ? "" : times(rate("Latchkey") / rate(name)),
        ]),
      },
    ],
    bars: [bar("two plain statements in hooks"), bar("Latchkey, groupCommit: false")],
  };
}

await answerWhenStarted(import.meta.url, run);
