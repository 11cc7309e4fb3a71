// How many messages per second do relays deliver from Postgres to a handler in their own process?
import { fork } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { cpus } from "node:os";
import { fileURLToPath } from "node:url";
import { createLatchkey } from "latchkey";
import { migrate, postgresStore } from "latchkey/postgres";
import { relay, toHandlers } from "latchkey/workers";
import pg from "pg";

const rounds = Number(process.env.ROUNDS ?? 5);
const messages = Number(process.env.MESSAGES ?? 100_000);
const partitions = 200;

if (process.send !== undefined) await deliver();
else await measure();

/** One relay in a process of its own: says when it is ready, begins when it is told to, and ends when all is done. */
async function deliver() {
  const pool = new pg.Pool({ connectionString: process.argv[2], max: 3 });
  const latchkey = createLatchkey({ store: postgresStore(pool), tenant: "single" });
  let delivered = 0;
  const worker = relay(latchkey, {
    deliver: toHandlers({
      async "receipt.send"() {
        delivered += 1;
      },
    }),
    intervalMs: 10,
  });
  const stop = new AbortController();
  process.on("message", (message) => {
    if (message === "start") void worker.run(stop.signal);
    else stop.abort();
  });
  // Whoever started this process is gone: so is the reason to run.
  process.on("disconnect", () => process.exit());
  const report = setInterval(() => process.send?.({ delivered }), 5);
  process.send?.("ready");
  await once(stop.signal, "abort");
  clearInterval(report);
  await latchkey.close();
  await pool.end();
}

async function measure() {
  const server = await postgres();
  /** @type {Map<number, number[]>} */
  const measured = new Map();
  try {
    for (let round = 0; round < rounds; round += 1) {
      // Both variants within some seconds, so that a noisy neighbour hits them alike.
      for (const relays of [1, 2]) {
        const rate = await drain(server.url, relays);
        measured.set(relays, [...(measured.get(relays) ?? []), rate]);
        if (process.stderr.isTTY) process.stderr.write(`${relays} relays: ${Math.round(rate)} messages/s\n`);
      }
    }
  } finally {
    await server.stop();
  }
  console.log(
    `Node ${process.version}, ${cpus().length} cores (Postgres on the same), ${messages} messages in ${partitions} partitions, ${rounds} rounds`,
  );
  console.table(
    [...measured].map(([relays, rates]) => ({
      "relay processes": relays,
      "median/s": Math.round(median(rates)),
      "slowest/s": Math.round(Math.min(...rates)),
      "fastest/s": Math.round(Math.max(...rates)),
    })),
  );
}

/**
 * Delivers everything from a full outbox; answers with messages per second.
 *
 * @param {string} serverUrl
 * @param {number} relays
 */
async function drain(serverUrl, relays) {
  const name = `latchkey_bench_${randomBytes(6).toString("hex")}`;
  const admin = new pg.Client({ connectionString: serverUrl });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${name}`);
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  const children = Array.from({ length: relays }, () =>
    fork(fileURLToPath(import.meta.url), [url.href], { env: { ...process.env, NODE_ENV: "production" } }),
  );
  try {
    await fill(url.href);
    await Promise.all(children.map((child) => once(child, "message")));
    const startedAt = performance.now();
    const counts = children.map(() => 0);
    const done = new Promise((/** @type {(value?: undefined) => void} */ resolve, reject) => {
      for (const [index, child] of children.entries()) {
        child.on("exit", () => reject(new Error("a relay ended early")));
        child.on("message", (/** @type {{ delivered: number }} */ { delivered }) => {
          counts[index] = delivered;
          if (counts.reduce((sum, count) => sum + count) >= messages) resolve();
        });
        child.send("start");
      }
    });
    await done;
    const seconds = (performance.now() - startedAt) / 1000;
    return messages / seconds;
  } finally {
    await Promise.all(
      children.map(async (child) => {
        child.removeAllListeners("exit");
        if (child.exitCode !== null) return;
        child.kill("SIGKILL");
        await once(child, "exit");
      }),
    );
    await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
    await admin.end();
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

/** The server in DATABASE_URL, or else the one that the tests start. */
async function postgres() {
  const url = process.env.DATABASE_URL;
  if (url !== undefined) return { url, stop: async () => {} };
  const { tsImport } = await import("tsx/esm/api");
  const { startPostgres } = await tsImport("../test/support/postgres-server.ts", import.meta.url);
  const server = await startPostgres();
  return { url: server.url, stop: () => server.remove() };
}

/** @param {readonly number[]} values */
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
