import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openStore } from "../../src/stores/open-store.ts";
import type { AppOptions } from "./app.ts";
import { freshDatabase } from "./database.ts";
import { startDynamoDb } from "./dynamodb-server.ts";
import { startMariadb } from "./mariadb-server.ts";
import { startRedis, startRedisCluster } from "./redis-server.ts";

/** A store on a real server, or in a file, that any number of processes can share, ready to be used. */
export interface SharedStore {
  readonly store: AppOptions["store"];
  stop(): Promise<unknown>;
}

/** Every store that several processes can share, by its name. */
export const sharedStores = {
  SQLite: () =>
    migrated(async () => {
      const folder = await mkdtemp(join(tmpdir(), "latchkey-shared-"));
      const url = `sqlite:${join(folder, "latchkey.db")}`;
      return { store: { kind: "url", url }, stop: () => rm(folder, { recursive: true, force: true }) };
    }),
  Postgres: () => migrated(postgres),
  "Postgres with advisory locks": () =>
    migrated(async () => {
      const { url, drop } = await freshDatabase();
      return { store: { kind: "postgres", url, lock: "advisory" }, stop: drop };
    }),
  MariaDB: () =>
    migrated(async () => {
      const server = await startMariadb();
      const { url } = await server.createDatabase();
      return { store: { kind: "url", url }, stop: server.remove };
    }),
  Redis: () =>
    migrated(async () => {
      const { url, stop } = await startRedis();
      return { store: { kind: "url", url }, stop };
    }),
  "Redis Cluster": () =>
    migrated(async () => {
      const { url, stop } = await startRedisCluster();
      return { store: { kind: "url", url }, stop };
    }),
  DynamoDB: () =>
    migrated(async () => {
      const server = await startDynamoDb();
      const url = `dynamodb://test:test@local/latchkey?endpoint=${encodeURIComponent(server.url)}`;
      return { store: { kind: "url", url }, stop: server.stop };
    }),
  "Redis in front of Postgres": () =>
    migrated(async () => {
      const front = await startRedis();
      const { store, stop } = await postgres();
      return { store: { ...store, front: front.url }, stop: () => Promise.all([stop(), front.stop()]) };
    }),
} satisfies Readonly<Record<string, () => Promise<SharedStore>>>;

async function postgres() {
  const { url, drop } = await freshDatabase();
  return { store: { kind: "url", url } as const, stop: drop };
}

async function migrated(start: () => Promise<SharedStore>): Promise<SharedStore> {
  const shared = await start();
  const store = await openStore(shared.store.url, { migrate: true });
  await store.close();
  return shared;
}
