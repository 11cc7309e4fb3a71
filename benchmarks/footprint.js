// What does a key cost to keep: bytes on disk, bytes of log, bytes of memory?
import { randomUUID } from "node:crypto";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createLatchkey } from "latchkey";
import { memoryStore } from "latchkey/memory";
import { sqliteStore } from "latchkey/sqlite";
import Database from "libsql";
import { answerWhenStarted, whole } from "./lib/answer.js";
import { latchkeyOn, plainPool } from "./lib/contenders.js";
import { forEachOf } from "./lib/load.js";
import { nodeIdempotencyStatements } from "./lib/node-idempotency.js";
import { charge, chargeBytes, order } from "./lib/payload.js";
import { query, withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { numberOf } from "./lib/settings.js";

const keyCount = numberOf("KEYS", 20_000);

setFlagsFromString("--expose-gc");
const collectGarbage = /** @type {() => void} */ (runInNewContext("gc"));

/** @returns {Promise<import("./lib/answer.js").Answer>} */
export async function run() {
  const progress = createProgress(5);
  const keys = Array.from({ length: keyCount }, () => randomUUID());
  const memory = await inMemory(keys);
  progress.step("memory");
  const sqlite = await inSqlite(keys);
  progress.step("SQLite");
  const [pool, peer, postgres] = await withPostgres(async (server) => {
    const measured = [];
    for (const { make, table } of postgresContenders) {
      measured.push(await withDatabase(server, (url) => inPostgres(url, { keys, make, table })));
      progress.step(table);
    }
    return measured;
  });
  return {
    tables: [
      {
        title: `What a completed key with a response of ${chargeBytes.length} bytes costs to keep`,
        columns: ["store", "bytes per key", "of it indexes", "MB per million keys", "log bytes per key"],
        rows: [
          ["memory (heap and buffers)", whole(memory), "", whole(memory), ""],
          ["SQLite (the file)", whole(sqlite), "", whole(sqlite), ""],
          ...[
            { name: "Postgres", size: postgres },
            { name: "the plain pool's least of a table", size: pool },
            { name: "@node-idempotency's table, logged (stand-in)", size: peer },
          ].map(({ name, size }) => [
            name,
            whole(size?.total ?? Number.NaN),
            whole(size?.indexes ?? Number.NaN),
            whole(size?.total ?? Number.NaN),
            whole(size?.log ?? Number.NaN),
          ]),
        ],
      },
      {
        title: "What stays in the process for each key that is only in Postgres",
        columns: ["bytes of heap per key"],
        rows: [[whole(postgres?.heap ?? Number.NaN)]],
      },
    ],
    notes: [
      `Measured on ${whole(keyCount)} keys straight after they were completed; dead versions of rows are still there.`,
    ],
  };
}

const postgresContenders = [
  { table: "plain_records", make: plainPool },
  {
    table: "peer_logged",
    make: (/** @type {string} */ url) => nodeIdempotencyStatements(url, { isLogged: true }),
  },
  { table: "latchkey_records", make: latchkeyOn },
];

/** @param {readonly string[]} keys */
async function inMemory(keys) {
  const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
  const before = memoryUsed().total;
  await forEachOf(keys, (key) => latchkey.run({ tenant: "acme", key, input: order }, () => charge));
  const used = memoryUsed().total - before;
  await latchkey.close();
  return used / keys.length;
}

/** @param {readonly string[]} keys */
async function inSqlite(keys) {
  const folder = await mkdtemp(join(tmpdir(), "latchkey-bench-"));
  const file = join(folder, "records.db");
  const database = new Database(file);
  const latchkey = createLatchkey({ store: sqliteStore(database), tenant: "single" });
  const before = (await stat(file)).size;
  await forEachOf(keys, (key) => latchkey.run({ tenant: "acme", key, input: order }, () => charge));
  await latchkey.close();
  database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  database.close();
  const { size } = await stat(file);
  await rm(folder, { recursive: true });
  return (size - before) / keys.length;
}

/**
 * @param {string} url
 * @param {object} options
 * @param {readonly string[]} options.keys
 * @param {(url: string) => Promise<import("./lib/contenders.js").Contender>} options.make
 * @param {string} options.table
 */
async function inPostgres(url, { keys, make, table }) {
  const contender = await make(url);
  const half = Math.floor(keys.length / 2);
  const logBefore = await logPosition(url);
  await forEachOf(keys.slice(0, half), (key) => contender.operation(key));
  // The first half has opened connections and compiled code; what grows after it grows with every key.
  const heapBefore = memoryUsed().heap;
  await forEachOf(keys.slice(half), (key) => contender.operation(key));
  const heapAfter = memoryUsed().heap;
  const logAfter = await logPosition(url);
  await contender.close();
  const [size] = await query(
    url,
    "SELECT pg_total_relation_size($1::regclass)::float8 AS total, pg_indexes_size($1::regclass)::float8 AS indexes",
    [table],
  );
  return {
    total: Number(size?.total) / keys.length,
    indexes: Number(size?.indexes) / keys.length,
    log: (logAfter - logBefore) / keys.length,
    heap: Math.max(0, (heapAfter - heapBefore) / (keys.length - half)),
  };
}

/** @param {string} url */
async function logPosition(url) {
  const [row] = await query(url, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8 AS bytes");
  return Number(row?.bytes);
}

function memoryUsed() {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  // Buffers outside of the heap come and go by the megabyte with the sockets, so only what is full of them counts them.
  return { heap: heapUsed, total: heapUsed + external };
}

await answerWhenStarted(import.meta.url, run);
