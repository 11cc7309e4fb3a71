import { ConfigError } from "../core/errors.ts";
import type { Store } from "../core/store.ts";
import { driver } from "./driver.ts";
import type { DynamoDbStoreOptions } from "./dynamodb/store.ts";
import type { MysqlStoreOptions } from "./mysql/store.ts";
import type { PostgresStoreOptions } from "./postgres/store.ts";
import { parseClusterUrl, redisClient, redisClusterClient } from "./redis/connect.ts";
import type { RedisStoreOptions } from "./redis/store.ts";
import type { SqliteStoreOptions } from "./sqlite/store.ts";

export interface OpenStoreOptions {
  /** Makes the tables, or brings them to the version of this code, before the store is handed out. */
  readonly migrate?: boolean;
  readonly sqlite?: SqliteStoreOptions;
  readonly postgres?: PostgresStoreOptions;
  readonly mysql?: MysqlStoreOptions;
  readonly redis?: RedisStoreOptions;
  /** The table is named by the URL. */
  readonly dynamodb?: Omit<DynamoDbStoreOptions, "table">;
}

/**
 * A store by its URL, for whatever is configured by text. The driver is loaded here, and the connections that this
 * opens are closed with the store. A server that cannot be reached shows with the first call.
 *
 * | URL | driver |
 * |---|---|
 * | `memory:` | none |
 * | `sqlite:./file.db` | `node:sqlite`, `libsql` or `better-sqlite3` |
 * | `postgres://user@host/database` | `pg` |
 * | `mysql://user@host/database` | `mysql2` |
 * | `redis://host:6379`, `rediss://…` | `ioredis` or `redis` |
 * | `redis-cluster://host:7000,host:7001`, `rediss-cluster://…` | `ioredis` or `redis` |
 * | `dynamodb://region/table` | `@aws-sdk/client-dynamodb` |
 *
 * @example
 * ```ts
 * const store = await openStore(process.env.LATCHKEY_STORE ?? "sqlite:./latchkey.db", { migrate: true });
 * ```
 */
export async function openStore(url: string, options: OpenStoreOptions = {}): Promise<Store> {
  return openers[kindOfUrl(url)](url, options);
}

export type StoreKind = "memory" | "sqlite" | "postgres" | "mysql" | "redis" | "redis-cluster" | "dynamodb";

/** Which store a URL names. */
export function kindOfUrl(url: string): StoreKind {
  const scheme = /^([a-z][a-z0-9+-]*):/i.exec(url)?.[1]?.toLowerCase();
  const kind = scheme === undefined ? undefined : kinds[scheme];
  if (kind !== undefined) return kind;
  // The URL itself is not repeated, here or below: it may hold a password, and messages end in logs.
  throw new ConfigError(
    `${scheme === undefined ? "a store's URL begins with its kind" : `there is no store for "${scheme}:" URLs`}: ` +
      "use memory:, sqlite:./file.db, postgres://…, mysql://…, redis://…, redis-cluster://… or dynamodb://region/table",
  );
}

/** @internal Throws if nothing could be opened by the URL, as far as it can be told without trying. */
export function assertStoreUrl(url: string): void {
  const kind = kindOfUrl(url);
  if (kind === "memory") assertMemoryUrl(url);
  else if (kind === "sqlite") sqlitePath(url);
  else if (kind === "redis-cluster") parseClusterUrl(url);
  else if (kind === "dynamodb") dynamodbPlace(url);
}

type Opener = (url: string, options: OpenStoreOptions) => Promise<Store>;

const kinds: Readonly<Record<string, StoreKind>> = {
  memory: "memory",
  sqlite: "sqlite",
  postgres: "postgres",
  postgresql: "postgres",
  mysql: "mysql",
  mariadb: "mysql",
  redis: "redis",
  rediss: "redis",
  "redis-cluster": "redis-cluster",
  "rediss-cluster": "redis-cluster",
  dynamodb: "dynamodb",
};

const openers: Readonly<Record<StoreKind, Opener>> = {
  memory: openMemory,
  sqlite: openSqlite,
  postgres: openPostgres,
  mysql: openMysql,
  redis: openRedis,
  "redis-cluster": openRedisCluster,
  dynamodb: openDynamodb,
};

function assertMemoryUrl(url: string): void {
  if (url.length > "memory:".length) {
    throw new ConfigError("nothing follows memory: in the URL of a store in memory");
  }
}

async function openMemory(url: string): Promise<Store> {
  assertMemoryUrl(url);
  const { memoryStore } = await import("./memory/store.ts");
  return memoryStore();
}

/** The file that an SQLite store's URL names. */
export function sqlitePath(url: string): string {
  // A file's path, not a host: only three slashes can be read as one.
  const path = url.slice("sqlite:".length).replace(/^\/\/(?=\/)/, "");
  if (path === "" || path.startsWith("//")) {
    throw new ConfigError("a SQLite store's URL names its file: sqlite:./file.db or sqlite:/folder/file.db");
  }
  return path;
}

async function openSqlite(url: string, options: OpenStoreOptions): Promise<Store> {
  const path = sqlitePath(url);
  const { sqliteStore } = await import("./sqlite/store.ts");
  return sqliteStore(path, options.sqlite);
}

export async function postgresPool(url: string) {
  const { Pool } = (await driver("pg", () => import("pg"))).default;
  return new Pool({ connectionString: url });
}

async function openPostgres(url: string, options: OpenStoreOptions): Promise<Store> {
  const { migrate, postgresStore } = await import("./postgres/store.ts");
  const { engine = "postgres", partitioned = false } = options.postgres ?? {};
  if (options.migrate && partitioned) {
    throw new ConfigError(
      'a partitioned table is made by migrate(pool, { partitioned: "day" | "hour" }) from latchkey/postgres: leave out migrate here',
    );
  }
  const pool = await postgresPool(url);
  return opened({
    store: () => postgresStore(pool, options.postgres),
    prepare: options.migrate ? () => migrate(pool, { engine }) : undefined,
    end: () => pool.end(),
  });
}

export async function mysqlPool(url: string) {
  const { createPool } = await driver("mysql2", () => import("mysql2/promise"));
  return createPool(url.replace(/^mariadb:/i, "mysql:"));
}

async function openMysql(url: string, options: OpenStoreOptions): Promise<Store> {
  const { migrate, mysqlStore } = await import("./mysql/store.ts");
  const pool = await mysqlPool(url);
  return opened({
    store: () => mysqlStore(pool, options.mysql),
    prepare: options.migrate ? () => migrate(pool) : undefined,
    end: () => pool.end(),
  });
}

async function openRedis(url: string, options: OpenStoreOptions): Promise<Store> {
  const { redisStore } = await import("./redis/store.ts");
  return redisStore(await redisClient(url), options.redis);
}

async function openRedisCluster(url: string, options: OpenStoreOptions): Promise<Store> {
  const { redisStore } = await import("./redis/store.ts");
  return redisStore(await redisClusterClient(url), options.redis);
}

/** What a DynamoDB store's URL names. */
function dynamodbPlace(url: string): { readonly region: string; readonly table: string } {
  const { hostname: region = "", pathname = "" } = URL.canParse(url) ? new URL(url) : {};
  const table = pathname.slice(1);
  // Nothing is encoded in the name of a table: it has letters, digits, dots, dashes and underscores.
  if (region === "" || !/^[\w.-]+$/.test(table)) {
    throw new ConfigError("a DynamoDB store's URL is dynamodb://region/table");
  }
  return { region, table };
}

async function openDynamodb(url: string, options: OpenStoreOptions): Promise<Store> {
  const { DynamoDBClient } = await driver(
    "@aws-sdk/client-dynamodb",
    () => import("@aws-sdk/client-dynamodb"),
  );
  const { region, table } = dynamodbPlace(url);
  const { searchParams, username, password } = new URL(url);
  const { createTable, dynamodbStore } = await import("./dynamodb/store.ts");
  const endpoint = searchParams.get("endpoint");
  const client = new DynamoDBClient({
    region,
    // The SDK's fifty would be the limit of what the whole process can do.
    requestHandler: { httpAgent: { maxSockets }, httpsAgent: { maxSockets } },
    ...(endpoint === null ? {} : { endpoint }),
    ...(username === "" ? {} : { credentials: credentialsOf(username, password) }),
  });
  return opened({
    store: () => dynamodbStore(client, { ...options.dynamodb, table }),
    prepare: options.migrate ? () => createTable(client, { table }) : undefined,
    end: async () => client.destroy(),
  });
}

const maxSockets = 256;

/** Without them the SDK looks in the environment, in the profile and at the machine's role, as it always does. */
function credentialsOf(username: string, password: string) {
  return { accessKeyId: decodeURIComponent(username), secretAccessKey: decodeURIComponent(password) };
}

/** A store that closes the connections with itself; they are closed at once if it cannot be made. */
async function opened<Tx>(parts: {
  readonly store: () => Store<Tx>;
  readonly prepare?: (() => Promise<unknown>) | undefined;
  readonly end: () => Promise<unknown>;
}): Promise<Store> {
  try {
    await parts.prepare?.();
    const store = parts.store() as Store;
    const closeStore = store.close.bind(store);
    let closed: Promise<void> | undefined;
    const close = async () => {
      await closeStore();
      await parts.end();
    };
    return Object.assign(store, {
      close() {
        closed ??= close();
        return closed;
      },
    });
  } catch (error) {
    await parts.end();
    throw error;
  }
}
