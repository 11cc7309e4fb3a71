// What does each store do per second, what does a key cost to keep in it, and what does its server's own tool say?
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DescribeTableCommand, DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { Cluster, Redis } from "ioredis";
import { createLatchkey } from "latchkey";
import { layeredStore } from "latchkey/layered";
import { redisStore } from "latchkey/redis";
import { openStore } from "latchkey/stores";
import Database from "libsql";
import { createConnection } from "mysql2/promise";
import { createClient } from "redis";
import { answerWhenStarted, ms, whole } from "./lib/answer.js";
import { startChild } from "./lib/child.js";
import { contenderOf } from "./lib/contenders.js";
import { closedLoop, forEachOf, warmUp } from "./lib/load.js";
import { chargeBytes } from "./lib/payload.js";
import { query, withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { interleave, medianOf, turns } from "./lib/rounds.js";
import { numberOf } from "./lib/settings.js";
import { mariadbSlapRate, pgbenchRate, redisBenchmarkRate } from "./lib/tools.js";

/** @typedef {import("./lib/tools.js").Tool} Tool */
/** @typedef {{ redis: string, redisCluster: string, mariadb: string, dynamodb: string, tools: { redisBenchmark?: Tool, mariadbSlap?: Tool } }} Servers */
/** @typedef {ReturnType<typeof contenderOf>} Contender */

const callers = 64;
const keyCount = numberOf("KEYS", 10_000);
const ours = "Redis (ioredis)";
const redisCluster = "Redis Cluster, six nodes here";
const layered = "Redis in front of Postgres";
const dynamodbLocal = "DynamoDB Local";

export async function run() {
  const { child, message: servers, exit } = await startChild("servers.js", []);
  try {
    return await withPostgres((server) =>
      withDatabase(server, (postgres) => measure(postgres, /** @type {Servers} */ (servers))),
    );
  } finally {
    child.disconnect();
    await exit;
  }
}

/**
 * @param {string} postgres
 * @param {Servers} servers
 * @returns {Promise<import("./lib/answer.js").Answer>}
 */
async function measure(postgres, servers) {
  const folder = await mkdtemp(join(tmpdir(), "latchkey-bench-"));
  const sqlite = join(folder, "records.db");
  const dynamodb = `dynamodb://bench:bench@local/bench?endpoint=${encodeURIComponent(servers.dynamodb)}`;
  const contenders = {
    memory: await opened("memory:"),
    "SQLite, synchronous=FULL": await opened(`sqlite:${sqlite}`),
    Postgres: await opened(postgres),
    MariaDB: await opened(servers.mariadb),
    [ours]: latchkeyOn(redisStore(new Redis(servers.redis, { lazyConnect: true }))),
    "Redis (redis)": latchkeyOn(redisStore(createClient({ url: servers.redis }))),
    [redisCluster]: await opened(servers.redisCluster),
    [dynamodbLocal]: await opened(dynamodb),
    [layered]: latchkeyOn(
      layeredStore(
        await openStore(postgres, { postgres: { listen: true } }),
        new Redis(servers.redis, { lazyConnect: true }),
      ),
    ),
  };
  const tools = {
    "pgbench, two prepared statements": () => pgbenchRate(postgres),
    "mariadb-slap, two statements": () => mariadbSlapRate(servers.tools.mariadbSlap, servers.mariadb),
    "redis-benchmark, two SETs": () => redisBenchmarkRate(servers.tools.redisBenchmark, servers.redis),
  };
  const [contender, tool] = [Object.keys(contenders).length, Object.keys(tools).length];
  const progress = createProgress(turns(contender + tool) + sizes(postgres, servers, sqlite).length);
  try {
    await warmUp(Object.values(contenders));
    const rates = await interleave(
      Object.fromEntries(
        Object.entries(contenders).map(([name, { operation }]) => [
          name,
          () => closedLoop({ callers, operation: () => operation() }),
        ]),
      ),
      progress,
    );
    const toolRates = await interleave(
      Object.fromEntries(
        Object.entries(tools).map(([name, rate]) => [
          name,
          async () => ({ rate: (await rate()) ?? Number.NaN }),
        ]),
      ),
      progress,
    );
    const bytes = await bytesPerKey(contenders, sizes(postgres, servers, sqlite), progress);
    return report({ rates, toolRates, bytes });
  } finally {
    for (const { close } of Object.values(contenders)) await close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** @param {import("latchkey").Store} store */
function latchkeyOn(store) {
  return contenderOf(createLatchkey({ store, tenant: "single" }));
}

/** @param {string} url */
async function opened(url) {
  return latchkeyOn(await openStore(url, { migrate: true }));
}

/**
 * How many bytes each store occupies.
 *
 * @param {string} postgres
 * @param {Servers} servers
 * @param {string} sqlite
 * @returns {{ name: string, size: () => Promise<number> }[]}
 */
function sizes(postgres, servers, sqlite) {
  return [
    { name: "SQLite, synchronous=FULL", size: () => sqliteSize(sqlite) },
    { name: "Postgres", size: () => postgresSize(postgres) },
    { name: "MariaDB", size: () => mariadbSize(servers.mariadb) },
    { name: ours, size: () => redisSize(servers.redis) },
    { name: redisCluster, size: () => redisClusterSize(servers.redisCluster) },
    { name: dynamodbLocal, size: () => dynamodbSize(servers.dynamodb) },
    {
      name: layered,
      size: async () => (await postgresSize(postgres)) + (await redisSize(servers.redis)),
    },
  ];
}

/**
 * What as many keys again add.
 *
 * @param {Record<string, { operation(key: string): Promise<unknown> }>} contenders
 * @param {ReturnType<typeof sizes>} measures
 * @param {{ step(line: string): void }} progress
 */
async function bytesPerKey(contenders, measures, progress) {
  /** @type {Record<string, number>} */
  const bytes = {};
  for (const { name, size } of measures) {
    const before = await size();
    // DynamoDB Local is slow, and says exactly what each item takes.
    const keys = Array.from({ length: name === dynamodbLocal ? keyCount / 20 : keyCount }, () =>
      randomUUID(),
    );
    await forEachOf(keys, async (key) => contenders[name]?.operation(key), callers);
    bytes[name] = ((await size()) - before) / keys.length;
    progress.step(`bytes per key: ${name}`);
  }
  return bytes;
}

/**
 * Of the file, once its log is in it: the log is written from its beginning again, so that its size tells nothing.
 *
 * @param {string} file
 */
async function sqliteSize(file) {
  const database = new Database(file);
  database.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  database.close();
  return (await stat(file)).size;
}

/** @param {string} url */
async function postgresSize(url) {
  const [row] = await query(url, "SELECT pg_total_relation_size('latchkey_records')::float8 AS bytes");
  return Number(row?.bytes);
}

/** @param {string} url */
async function mariadbSize(url) {
  const connection = await createConnection(url);
  try {
    await connection.query("ANALYZE TABLE latchkey_records");
    const [rows] = await connection.query(
      "SELECT data_length + index_length AS bytes FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'latchkey_records'",
    );
    return Number(/** @type {{ bytes: number }[]} */ (rows)[0]?.bytes);
  } finally {
    await connection.end();
  }
}

/** @param {string} url */
async function redisSize(url) {
  const client = new Redis(url);
  try {
    return await memoryOf(client);
  } finally {
    client.disconnect();
  }
}

/**
 * Of the primaries: each of their replicas takes as much again.
 *
 * @param {string} url
 */
async function redisClusterSize(url) {
  const nodes = url.replace("redis-cluster://", "").split(",");
  const client = new Cluster(nodes.map((node) => `redis://${node}`));
  try {
    await once(client, "ready");
    const bytes = await Promise.all(client.nodes("master").map(memoryOf));
    return bytes.reduce((sum, each) => sum + each, 0);
  } finally {
    client.disconnect();
  }
}

/** @param {Redis} client */
async function memoryOf(client) {
  const [, bytes] = /used_memory:(\d+)/.exec(await client.info("memory")) ?? [];
  return Number(bytes);
}

/** @param {string} endpoint */
async function dynamodbSize(endpoint) {
  const credentials = { accessKeyId: "bench", secretAccessKey: "bench" };
  const client = new DynamoDBClient({ region: "local", endpoint, credentials });
  try {
    const { Table } = await client.send(new DescribeTableCommand({ TableName: "bench" }));
    return Number(Table?.TableSizeBytes);
  } finally {
    client.destroy();
  }
}

/**
 * @param {object} measured
 * @param {Record<string, import("./lib/load.js").ClosedSample[]>} measured.rates
 * @param {Record<string, { rate: number }[]>} measured.toolRates
 * @param {Record<string, number>} measured.bytes
 * @returns {import("./lib/answer.js").Answer}
 */
function report({ rates, toolRates, bytes }) {
  return {
    tables: [
      {
        title: `Fresh operations per second on each store (reserve + complete, ${callers} callers, ${chargeBytes.length}-byte responses)`,
        columns: ["store", "per second", "p50", "p99", "client CPU per operation", "bytes per key"],
        rows: Object.entries(rates).map(([name, samples]) => [
          name,
          whole(medianOf(samples, "rate")),
          ms(medianOf(samples, "p50")),
          ms(medianOf(samples, "p99")),
          `${whole(medianOf(samples, "cpu"))} µs`,
          bytes[name] === undefined ? "" : whole(bytes[name]),
        ]),
      },
      {
        title: `The servers' own tools, ${callers} clients, two writes to an operation`,
        columns: ["tool", "operations per second"],
        rows: Object.entries(toolRates).map(([name, samples]) => {
          const rate = medianOf(samples, "rate");
          return [name, Number.isFinite(rate) ? whole(rate) : "not on this machine"];
        }),
      },
    ],
    notes: [
      `Bytes per key: what ${whole(keyCount)} more keys (a twentieth of them in DynamoDB) add to the table with its indexes, to the file once its log is in it, or to Redis' memory ` +
        "with its log's buffers, in a Cluster to that of its primaries; Redis in front of Postgres: to both together; for DynamoDB what it would bill as storage. Redis runs with `appendonly yes` (the disk once a " +
        "second), MariaDB and Postgres wait for the disk at every commit. DynamoDB Local is a stand-in for development: its rate says " +
        "nothing about the service.",
    ],
  };
}

await answerWhenStarted(import.meta.url, run);
