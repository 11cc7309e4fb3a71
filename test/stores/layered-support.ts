import { Redis } from "ioredis";
import type pg from "pg";
import { createClient } from "redis";
import type { Store } from "../../src/core/store.ts";
import { systemRuntime } from "../../src/engine/runtime.ts";
import { type LayeredStoreOptions, layeredStore, type RedisClient } from "../../src/stores/layered/store.ts";
import {
  type PostgresStoreOptions,
  postgresStore,
  type TransactionOf,
} from "../../src/stores/postgres/store.ts";
import { type FaultyStore, faultyStore } from "../../src/testing/index.ts";
import { again, complete, eventually, leaseOf, request } from "./postgres-support.ts";

/** A client of either library, and how it is closed. */
export interface OpenClient {
  readonly client: RedisClient;
  close(): Promise<unknown>;
}

export function ioredis(url: string): OpenClient {
  const client = new Redis(url, { lazyConnect: true });
  return { client, close: async () => client.disconnect() };
}

/** Never connected itself: the store opens a connection of its own. */
export function nodeRedis(url: string): OpenClient {
  return { client: createClient({ url }), close: async () => {} };
}

type Tx = TransactionOf<pg.Pool>;

/** A layered store over Postgres, as one process has it, and how often its truth was asked. */
export interface Layered {
  readonly store: Store<Tx>;
  readonly truth: FaultyStore;
  close(): Promise<void>;
}

export function layeredOver(
  pool: pg.Pool,
  front: OpenClient,
  options: LayeredStoreOptions & { readonly postgres?: PostgresStoreOptions } = {},
): Layered {
  const { postgres = { listen: true }, ...own } = options;
  const truth = faultyStore({
    store: postgresStore(pool, postgres) as Store,
    runtime: systemRuntime,
    choose: () => ({ kind: "none" }),
  });
  // Patient, because on a busy machine nothing else than the truth would be asked.
  const store = layeredStore(truth as Store<Tx>, front.client, { frontTimeoutMs: 2_000, ...own });
  return {
    store,
    truth,
    async close() {
      await store.close();
      await front.close();
    },
  };
}

/** Whether a replay comes without the truth. */
export async function isInUse({ store, truth }: Layered): Promise<boolean> {
  const first = request({ scope: "warm", key: `warm-${process.pid}-${++warmed}` });
  await store.settle(await leaseOf(store, first), complete);
  const before = truth.calls.reserve;
  await store.reserve(again(first));
  return truth.calls.reserve === before;
}
let warmed = 0;

/** Waits until the front answers: until busts are heard, the clock is known and Redis is connected. */
export async function inUse(layered: Layered): Promise<void> {
  await eventually(() => isInUse(layered));
}
