// Does anybody notice the reaper? The latency of live requests while five million expired records are deleted beside
// them, record by record, and how long it takes to drop as many with their partition.
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { cpus } from "node:os";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { createLatchkey } from "latchkey";
import { migrate, postgresStore } from "latchkey/postgres";
import { reaper } from "latchkey/workers";
import pg from "pg";

const { values } = parseArgs({
  options: {
    rows: { type: "string", default: "5000000" },
    rounds: { type: "string", default: "12" },
    seconds: { type: "string", default: "5" },
    rate: { type: "string", default: "300" },
    only: { type: "string" },
  },
});
const rows = Number(values.rows);
const rounds = Number(values.rounds);
const seconds = Number(values.seconds);
/** Requests per second, whether or not earlier ones have been answered: each is a reserve and a settle. */
const rate = Number(values.rate);

const body = new TextEncoder().encode(JSON.stringify({ id: "ch_1", amount: 500, currency: "usd" }));

const server = await startServer();
try {
  console.log(`Node ${process.version}, ${cpus().length} cores, ${server.version}, ${rate} requests/s`);
  if (values.only !== "drop") await measureBatches();
  if (values.only !== "batches") await measureDrop();
} finally {
  await server.stop();
}

async function measureBatches() {
  const { pool, workerPool, end } = await database("reaping_batches");
  await migrate(pool);
  note(`inserting ${rows} expired records`);
  await insertExpired(pool);
  const store = postgresStore(pool);
  // A worker has connections of its own, as it has a process of its own.
  const reaping = createLatchkey({ store: postgresStore(workerPool), tenant: "single" });
  await live(store, 3); // Connections are made and caches filled before anything counts.
  /** @type {{ alone: number[], beside: number[], reaped: number }[]} */
  const measured = [];
  for (let round = 0; round < rounds; round += 1) {
    // Both within some seconds, so that a noisy neighbour hits them alike.
    const alone = await live(store, seconds);
    const reaper = startReaper(reaping);
    const beside = await live(store, seconds);
    measured.push({ alone, beside, reaped: await reaper.stop() });
    note(`round ${round + 1} of ${rounds}`);
  }
  const left = await pool.query("SELECT count(*)::int AS n FROM latchkey_records WHERE scope = 'expired'");
  console.table(
    measured.map(({ alone, beside, reaped }) => ({
      "p50 alone": ms(percentile(alone, 0.5)),
      "p50 with reaper": ms(percentile(beside, 0.5)),
      "p99 alone": ms(percentile(alone, 0.99)),
      "p99 with reaper": ms(percentile(beside, 0.99)),
      "p99 ratio": ratio(beside, alone),
      "reaped/s": Math.round(reaped / seconds),
    })),
  );
  const p99 = (/** @type {"alone" | "beside"} */ which) =>
    median(measured.map((round) => percentile(round[which], 0.99)));
  const ratios = measured.map(({ alone, beside }) => Number(ratio(beside, alone)));
  console.log(
    `medians of the rounds: p99 ${ms(p99("alone"))} alone, ${ms(p99("beside"))} with reaper, ratio ` +
      `${median(ratios).toFixed(2)}; ${left.rows[0].n} expired records left`,
  );
  await end();
}

async function measureDrop() {
  const { pool, workerPool, end } = await database("reaping_partitions");
  await migrate(pool, { partitioned: "day" });
  await pool.query(`
    DO $$ BEGIN
      EXECUTE format('CREATE TABLE %I PARTITION OF latchkey_records FOR VALUES FROM (%L) TO (%L)',
        latchkey_partition_name(latchkey_bucket(now() - interval '3 days')),
        latchkey_bucket(now() - interval '3 days'), latchkey_bucket(now() - interval '2 days'));
    END $$`);
  note(`inserting ${rows} expired records into one partition`);
  await insertExpired(pool, "latchkey_bucket(now() - interval '3 days')");
  // Some that outlive their partition.
  await pool.query(
    "UPDATE latchkey_records SET expires_at = now() + interval '1 hour' WHERE scope = 'expired' AND key::int <= 100",
  );
  await pool.query("ANALYZE latchkey_records");
  const store = postgresStore(pool, { partitioned: true });
  const reaping = createLatchkey({
    store: postgresStore(workerPool, { partitioned: true }),
    tenant: "single",
  });
  const traffic = live(store, 10);
  await sleep(5_000);
  const name = await pool.query(
    "SELECT latchkey_partition_name(latchkey_bucket(now() - interval '3 days')) AS name",
  );
  const partition = name.rows[0].name;
  const isThere = async (/** @type {string} */ condition) =>
    (
      await pool.query(`SELECT EXISTS (SELECT FROM pg_class WHERE relname = $1 AND ${condition}) AS there`, [
        partition,
      ])
    ).rows[0].there;
  const begun = performance.now();
  const reaped = reaper(reaping).runOnce();
  // What anybody could have to wait for is over when the partition is not a part of the table any more.
  while (await isThere("relispartition")) await sleep(1);
  const detached = performance.now();
  const { deleted } = await reaped;
  if (await isThere("true")) throw new Error("the partition was not dropped");
  const dropped = performance.now();
  const latencies = await traffic;
  const left = await pool.query("SELECT count(*)::int AS n FROM latchkey_records WHERE scope = 'expired'");
  console.log(
    `partition detached after ${ms(detached - begun)}, dropped ${ms(dropped - detached)} later (about ${deleted} records; ` +
      `${left.rows[0].n} outlived it); live requests beside it: p99 ${ms(percentile(latencies, 0.99))}, slowest ${ms(percentile(latencies, 1))}`,
  );
  await end();
}

/**
 * An open loop: what is late stays late, and counts from when it was to begin.
 * @param {import("latchkey").Store} store
 * @param {number} duration in seconds
 * @returns {Promise<number[]>} milliseconds of each request
 */
async function live(store, duration) {
  const begun = performance.now();
  /** @type {Promise<number>[]} */
  const requests = [];
  for (let nth = 0; nth < rate * duration; nth += 1) {
    const due = begun + (nth * 1000) / rate;
    const early = due - performance.now();
    if (early > 1) await sleep(early);
    requests.push(serve(store).then(() => performance.now() - due));
  }
  return Promise.all(requests);
}

/** @param {import("latchkey").Store} store */
async function serve(store) {
  const reservation = await store.reserve({
    scope: "live",
    key: randomUUID(),
    fingerprint: "v1:benchmark",
    owner: randomUUID(),
    leaseMs: 15_000,
    retentionMs: 24 * 3_600_000,
    onCrash: "reconcile",
    reconcileAfterMs: 30_000,
    mode: "execute",
    route: undefined,
    request: undefined,
  });
  if (reservation.kind !== "execute") throw new Error(`expected to execute, got ${reservation.kind}`);
  const response = /** @type {const} */ ({ kind: "full", status: 201, headers: [], body });
  await store.settle(reservation.lease, { kind: "complete", response, retentionMs: 24 * 3_600_000 });
}

/**
 * The worker as it is, with its own batches and rests.
 * @param {import("latchkey").Latchkey} latchkey
 */
function startReaper(latchkey) {
  let reaped = 0;
  const unsubscribe = latchkey.subscribe((event) => {
    if (event.type === "reaped") reaped += event.deleted;
  });
  const stopping = new AbortController();
  const finished = reaper(latchkey).run(stopping.signal);
  return {
    async stop() {
      stopping.abort();
      await finished;
      unsubscribe();
      return reaped;
    },
  };
}

/**
 * @param {pg.Pool} pool
 * @param {string} [bucket]
 */
async function insertExpired(pool, bucket) {
  const chunk = 250_000;
  for (let first = 1; first <= rows; first += chunk) {
    await pool.query(
      `INSERT INTO latchkey_records (
         scope, key, state, fingerprint, fence, on_crash, created_at, expires_at, completed_at,
         response_status, response_head, response_body${bucket ? ", bucket" : ""})
       SELECT 'expired', n::text, 'completed', 'v1:benchmark', 1, 'reconcile', now() - interval '4 days',
         now() - interval '2 days' - n * interval '10 milliseconds', now() - interval '4 days', 201,
         '{"v":1,"headers":[]}', $1${bucket ? `, ${bucket}` : ""}
       FROM generate_series(${first}, ${Math.min(rows, first + chunk - 1)}) AS n`,
      [body],
    );
  }
  await pool.query("VACUUM ANALYZE latchkey_records");
  await pool.query("CHECKPOINT");
}

/** @param {string} name */
async function database(name) {
  const admin = new pg.Client({ connectionString: server.url });
  admin.on("error", () => {}); // The server stops at the end, whatever went wrong before.
  await admin.connect();
  await admin.query(`CREATE DATABASE ${name}`);
  const url = new URL(server.url);
  url.pathname = name;
  const pool = new pg.Pool({ connectionString: url.href, max: 10 });
  const workerPool = new pg.Pool({ connectionString: url.href, max: 2 });
  return {
    pool,
    workerPool,
    async end() {
      await pool.end();
      await workerPool.end();
      await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
      await admin.end();
    },
  };
}

/** The tests' own server, in a process of its own, or the one that is named. What is measured is not transformed. */
async function startServer() {
  const named = process.env.LATCHKEY_BENCH_POSTGRES_URL;
  if (named) return { url: named, version: await versionOf(named), async stop() {} };
  const support = pathToFileURL(
    fileURLToPath(new URL("../test/support/postgres-server.ts", import.meta.url)),
  );
  const script = `
    import { startPostgres } from ${JSON.stringify(support.href)};
    const server = await startPostgres({ settings: { shared_buffers: "512MB", max_wal_size: "4GB" } });
    console.log(server.url);
    process.stdin.on("end", () => server.remove()).resume();`;
  const child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "--eval", script], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const [url] = await once(createInterface(child.stdout), "line");
  return {
    url: String(url),
    version: await versionOf(String(url)),
    async stop() {
      child.stdin.end();
      await once(child, "exit");
    },
  };
}

/** @param {string} url */
async function versionOf(url) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows: versions } = await client.query("SHOW server_version");
  await client.end();
  return `Postgres ${versions[0].server_version}`;
}

/**
 * @param {readonly number[]} numbers
 * @param {number} share
 */
function percentile(numbers, share) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

/** @param {readonly number[]} numbers */
function median(numbers) {
  return percentile(numbers, 0.5);
}

/**
 * @param {readonly number[]} beside
 * @param {readonly number[]} alone
 */
function ratio(beside, alone) {
  return (percentile(beside, 0.99) / percentile(alone, 0.99)).toFixed(2);
}

/** @param {number} number */
function ms(number) {
  return `${number.toFixed(1)} ms`;
}

/** @param {string} line */
function note(line) {
  if (process.stderr.isTTY) process.stderr.write(`${line}\n`);
}
