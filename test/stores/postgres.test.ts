import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, it } from "vitest";
import type { Seams } from "../../src/stores/postgres/calls.ts";
import { databaseOf, type PostgresClient } from "../../src/stores/postgres/database.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres-store.ts";
import { migrate, type PostgresStoreOptions, postgresStore } from "../../src/stores/postgres/store.ts";
import type { Need } from "../../src/testing/contract/harness.ts";
import { runStoreContract } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database.ts";
import { businessTable, unheard } from "./postgres-support.ts";

interface Subject {
  readonly open: (url: string) => { readonly client: PostgresClient; end(): Promise<unknown> };
  readonly options?: PostgresStoreOptions;
  readonly lacks?: Partial<Record<Need, string>>;
  readonly seams?: Seams;
}

/** The cases ask one by one, and are to see batches. */
const batchesOfOne: Seams = { aloneMax: 0 };

/** They begin with an empty table, and are to see what is sent of a large one in which most keys are new. */
const asIfLarge: Seams = { callsOfNewMin: 0, pagesMin: 0 };

const hiddenInterruptions = "the driver listens again by itself, and does not tell when it could not";

const subjects: Readonly<Record<string, Subject>> = {
  "a pg pool": { open: pgPool, lacks: unheard },
  "a pg pool that listens": { open: pgPool, options: { listen: true } },
  "a pg pool with advisory locks": { open: pgPool, options: { lock: "advisory" } },
  "postgres.js": {
    open: postgresSql(),
    options: { listen: true },
    lacks: { "bust news": hiddenInterruptions, "bust generation": hiddenInterruptions },
  },
  "postgres.js that renames columns and looks up no types": {
    open: postgresSql({ transform: postgres.camel, fetch_types: false, prepare: false }),
    lacks: unheard,
  },
  "a pg pool without group commit": { open: pgPool, options: { groupCommit: false }, lacks: unheard },
  "a pg pool without group commit on a large table": {
    open: pgPool,
    options: { groupCommit: false },
    seams: asIfLarge,
    lacks: unheard,
  },
  "a pg pool in batches only, that listens": { open: pgPool, options: { listen: true }, seams: batchesOfOne },
  "a pg pool on a large table": { open: pgPool, seams: asIfLarge, lacks: unheard },
  "a pg pool on a large table, that listens": { open: pgPool, options: { listen: true }, seams: asIfLarge },
  "postgres.js in batches only": { open: postgresSql(), seams: batchesOfOne, lacks: unheard },
  "a transaction pool in batches only": { open: transactionPool, seams: batchesOfOne, lacks: unheard },
  "a transaction pool, where each statement meets another session": { open: transactionPool, lacks: unheard },
};

for (const [name, subject] of Object.entries(subjects)) {
  // Each subject has a database of its own, and the cases mostly wait for leases to run out: all subjects at once.
  describe.concurrent(name, () => {
    let client: PostgresClient;
    let business: Awaited<ReturnType<typeof businessTable>>;
    const cleanUp: (() => Promise<unknown>)[] = [];

    beforeAll(async () => {
      const database = await freshDatabase();
      const opened = subject.open(database.url);
      cleanUp.push(opened.end, database.drop);
      client = opened.client;
      await migrate(client);
      business = await businessTable(client);
    });

    afterAll(async () => {
      for (const step of cleanUp) await step();
    });

    // One client for all cases, a store for each: closing the store must leave the client open.
    runStoreContract({
      it: it.sequential,
      lacks: subject.lacks ?? {},
      async open() {
        const store = subject.seams
          ? new PostgresStore(databaseOf(client), subject.options ?? {}, subject.seams)
          : postgresStore(client, subject.options);
        return {
          store,
          passTime: async (ms) => void (await sleep(ms)),
          business,
          close: () => store.close(),
        };
      },
    });
  });
}

function pgPool(connectionString: string) {
  const client = new pg.Pool({ connectionString });
  return { client, end: () => client.end() };
}

function postgresSql(options: postgres.Options<Record<string, never>> = {}) {
  return (url: string) => {
    const client = postgres(url, options);
    return { client, end: () => client.end() };
  };
}

/** Two connections that take turns, and forget everything about their session before each statement. */
function transactionPool(connectionString: string) {
  const members = [1, 2].map(() => new pg.Pool({ connectionString, max: 1 }));
  let turn = 0;
  const next = () => members[turn++ % members.length] as pg.Pool;
  const client = {
    async query(statement: string | pg.QueryConfig, values?: unknown[]) {
      const session = await next().connect();
      try {
        await session.query("DISCARD ALL");
        return await session.query(statement, values);
      } finally {
        session.release();
      }
    },
    connect: () => next().connect(),
    on(event: "error", listener: (error: Error) => void) {
      for (const member of members) member.on(event, listener);
    },
  };
  return { client, end: () => Promise.all(members.map((member) => member.end())) };
}
