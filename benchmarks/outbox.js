// How many messages per second do relays deliver from Postgres to a handler in their own process?
import { migrate } from "latchkey/postgres";
import pg from "pg";
import { answerWhenStarted, whole } from "./lib/answer.js";
import { startChild } from "./lib/child.js";
import { withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { interleave, medianOf, turns } from "./lib/rounds.js";
import { numberOf } from "./lib/settings.js";

const messages = numberOf("MESSAGES", 100_000);
const partitions = 200;

export function run() {
  return withPostgres(measure);
}

/**
 * @param {import("./lib/postgres.js").PostgresServer} server
 * @returns {Promise<import("./lib/answer.js").Answer>}
 */
async function measure(server) {
  const drained = (/** @type {number} */ relays) => () => withDatabase(server, (url) => drain(url, relays));
  const samples = await interleave(
    { "1 relay": drained(1), "2 relays": drained(2) },
    createProgress(turns(2)),
  );
  return {
    tables: [
      {
        title: `Messages per second out of the outbox: ${whole(messages)} messages in ${partitions} partitions`,
        columns: ["relay processes", "median per second", "slowest", "fastest"],
        rows: Object.entries(samples).map(([name, rates]) => [
          name,
          whole(medianOf(rates, "rate")),
          whole(Math.min(...rates.map(({ rate }) => rate))),
          whole(Math.max(...rates.map(({ rate }) => rate))),
        ]),
      },
    ],
  };
}

/**
 * Delivers everything from a full outbox.
 *
 * @param {string} url
 * @param {number} relays
 * @returns {Promise<{ rate: number }>} messages per second
 */
async function drain(url, relays) {
  await fill(url);
  const started = await Promise.all(Array.from({ length: relays }, () => startChild("relay.js", [url])));
  try {
    const startedAt = performance.now();
    const counts = started.map(() => 0);
    await new Promise((/** @type {(value?: undefined) => void} */ resolve, reject) => {
      for (const [index, { child, exit }] of started.entries()) {
        void exit.then(() => reject(new Error("a relay ended early")));
        child.on("message", (/** @type {{ delivered: number }} */ { delivered }) => {
          counts[index] = delivered;
          if (counts.reduce((sum, count) => sum + count) >= messages) resolve();
        });
        child.send("start");
      }
    });
    return { rate: (messages * 1000) / (performance.now() - startedAt) };
  } finally {
    for (const { child } of started) child.kill("SIGKILL");
    await Promise.all(started.map(({ exit }) => exit));
  }
}

/** @param {string} url */
async function fill(url) {
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  await migrate(pool);
  await pool.query(
    `INSERT INTO latchkey_outbox (
       lane, topic, partition_key, payload, message_key, correlation_id, due_at, created_at)
     SELECT get_byte(sha256(partition::bytea), 3) % 64, 'receipt.send', partition,
       json_build_object('charge', 'ch_' || n, 'amount', 500, 'currency', 'usd')::text,
       'lk_' || n, 'req_' || n, now(), now()
     FROM generate_series(1, $1::int) AS n CROSS JOIN LATERAL (SELECT 'customer-' || n % $2::int AS partition) AS p
     ORDER BY n`,
    [messages, partitions],
  );
  await pool.end();
}

await answerWhenStarted(import.meta.url, run);
