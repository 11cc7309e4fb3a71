// Does anybody notice the reaper? The latency of live requests while five million expired records are deleted beside
// them, record by record, and how long it takes to drop as many with their partition.
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { createLatchkey } from "latchkey";
import { migrate, postgresStore } from "latchkey/postgres";
import { reaper } from "latchkey/workers";
import pg from "pg";
import { answerWhenStarted, ms, times, whole } from "./lib/answer.js";
import { chargeBytes } from "./lib/payload.js";
import { withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { median, percentile } from "./lib/statistics.js";

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

export function run() {
  return withPostgres(async (server) => {
    const isWanted = (/** @type {string} */ which) => values.only === undefined || values.only === which;
    const progress = createProgress((isWanted("batches") ? rounds + 1 : 0) + (isWanted("drop") ? 2 : 0));
    /** @type {import("./lib/answer.js").Table[]} */
    const tables = [];
    if (isWanted("batches")) {
      tables.push(
        await withDatabase(server, (url) => withPools(url, (pools) => measureBatches(pools, progress))),
      );
    }
    if (isWanted("drop")) {
      tables.push(
        await withDatabase(server, (url) => withPools(url, (pools) => measureDrop(pools, progress))),
      );
    }
    return { tables };
  });
}

/** @typedef {{ pool: pg.Pool, workerPool: pg.Pool }} Pools a worker has connections of its own, as it has a process of its own */
/** @typedef {{ step(line: string): void }} Progress */

/**
 * @template T
 * @param {string} url
 * @param {(pools: Pools) => Promise<T>} use
 */
async function withPools(url, use) {
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  const workerPool = new pg.Pool({ connectionString: url, max: 2 });
  try {
    return await use({ pool, workerPool });
  } finally {
    await pool.end();
    await workerPool.end();
  }
}

/**
 * @param {Pools} pools
 * @param {Progress} progress
 * @returns {Promise<import("./lib/answer.js").Table>}
 */
async function measureBatches({ pool, workerPool }, progress) {
  await migrate(pool);
  await insertExpired(pool);
  progress.step(`${whole(rows)} expired records are there`);
  const store = postgresStore(pool);
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
    progress.step(`round ${round + 1} of ${rounds}`);
  }
  const left = await pool.query("SELECT count(*)::int AS n FROM latchkey_records WHERE scope = 'expired'");
  const p99 = (/** @type {{ alone: number[], beside: number[] }} */ { alone, beside }) =>
    percentile(beside, 0.99) / percentile(alone, 0.99);
  const row = (/** @type {string} */ name, /** @type {typeof measured} */ which) => [
    name,
    ...[0.5, 0.99].flatMap((share) => [
      ms(median(which.map(({ alone }) => percentile(alone, share)))),
      ms(median(which.map(({ beside }) => percentile(beside, share)))),
    ]),
    times(median(which.map(p99))),
    whole(median(which.map(({ reaped }) => reaped / seconds))),
  ];
  return {
    title: `Live requests (${rate}/s) while ${whole(rows)} expired records are deleted beside them; ${whole(left.rows[0].n)} were left`,
    columns: [
      "round",
      "p50 alone",
      "p50 with reaper",
      "p99 alone",
      "p99 with reaper",
      "p99 ratio",
      "reaped/s",
    ],
    rows: [...measured.map((one, at) => row(String(at + 1), [one])), row("median", measured)],
  };
}

/**
 * @param {Pools} pools
 * @param {Progress} progress
 * @returns {Promise<import("./lib/answer.js").Table>}
 */
async function measureDrop({ pool, workerPool }, progress) {
  await migrate(pool, { partitioned: "day" });
  await pool.query(`
    DO $$ BEGIN
      EXECUTE format('CREATE TABLE %I PARTITION OF latchkey_records FOR VALUES FROM (%L) TO (%L)',
        latchkey_partition_name(latchkey_bucket(now() - interval '3 days')),
        latchkey_bucket(now() - interval '3 days'), latchkey_bucket(now() - interval '2 days'));
    END $$`);
  await insertExpired(pool, "latchkey_bucket(now() - interval '3 days')");
  // Some that outlive their partition.
  await pool.query(
    "UPDATE latchkey_records SET expires_at = now() + interval '1 hour' WHERE scope = 'expired' AND key::int <= 100",
  );
  await pool.query("ANALYZE latchkey_records");
  progress.step(`${whole(rows)} expired records are there, in one partition`);
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
  progress.step("the partition is gone");
  return {
    title: `A partition of ${whole(rows)} expired records is dropped beside live requests (${rate}/s)`,
    columns: ["what", "measured"],
    rows: [
      ["detached after", ms(detached - begun)],
      ["dropped, later by", ms(dropped - detached)],
      ["records in it, about", whole(deleted)],
      ["records that outlived it", whole(left.rows[0].n)],
      ["p99 of the live requests", ms(percentile(latencies, 0.99))],
      ["the slowest of them", ms(percentile(latencies, 1))],
    ],
  };
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
  const response = /** @type {const} */ ({ kind: "full", status: 201, headers: [], body: chargeBytes });
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
      [chargeBytes],
    );
  }
  await pool.query("VACUUM ANALYZE latchkey_records");
  await pool.query("CHECKPOINT");
}

await answerWhenStarted(import.meta.url, run);
