import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { migrate, type PostgresClient, postgresStore } from "../../src/stores/postgres/store.ts";
import { runStoreContract } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database.ts";
import { startPgBouncer } from "../support/pgbouncer.ts";
import type { TestDatabase } from "../support/postgres-server.ts";
import type { ServerProcess } from "../support/server-process.ts";
import { again, businessTable, complete, leaseOf, request, unheard } from "./postgres-support.ts";

const clients: Readonly<
  Record<string, (url: string) => { client: PostgresClient; end(): Promise<unknown> }>
> = {
  pg(connectionString) {
    const client = new pg.Pool({ connectionString });
    return { client, end: () => client.end() };
  },
  postgres(url) {
    const client = postgres(url, { prepare: false });
    return { client, end: () => client.end() };
  },
};

for (const [name, open] of Object.entries(clients)) {
  describe(`behind PgBouncer in transaction mode: ${name}`, () => {
    let database: TestDatabase;
    let bouncer: ServerProcess;
    let opened: ReturnType<typeof open>;
    let business: Awaited<ReturnType<typeof businessTable>>;

    beforeAll(async () => {
      database = await freshDatabase();
      bouncer = await startPgBouncer(database.url);
      opened = open(bouncer.url);
      await migrate(opened.client);
      business = await businessTable(opened.client);
    });

    afterAll(async () => {
      await opened.end();
      await bouncer.stop();
      await database.drop();
    });

    runStoreContract({
      it: it.sequential,
      lacks: unheard,
      async open() {
        const store = postgresStore(opened.client);
        const passTime = async (ms: number) => void (await sleep(ms));
        return { store, passTime, business, close: () => store.close() };
      },
    });

    it("crowds of fresh keys and of retries get the same answers", async () => {
      const store = postgresStore(opened.client);
      for (let wave = 0; wave < 10; wave += 1) {
        const fresh = Array.from({ length: 50 }, () => request({ key: randomUUID() }));
        const leases = await Promise.all(fresh.map((each) => leaseOf(store, each)));
        await Promise.all(leases.map((lease) => store.settle(lease, complete)));
        const replays = await Promise.all(fresh.map((each) => store.reserve(again(each))));
        expect(new Set(replays.map(({ kind }) => kind))).toEqual(new Set(["replay"]));
      }
    });
  });
}

it("a phase is not said to be committed when the driver's COMMIT went astray", async () => {
  const database = await freshDatabase();
  const bouncer = await startPgBouncer(database.url);
  const naming = postgres(bouncer.url, { max: 6 });
  const direct = new pg.Pool({ connectionString: database.url });
  try {
    await migrate(direct);
    const business = await businessTable(direct);
    const store = postgresStore(naming);
    const commit = () => ({ progress: [], onCrash: "resume" as const, messages: [] });
    const outcomes = await Promise.allSettled(
      Array.from({ length: 100 }, async (_, index) => {
        const lease = await leaseOf(store, request({ key: randomUUID() }));
        const id = `${index}`;
        const answer = await store.transact?.(lease, (tx) => business.insert(tx, id), commit);
        expect(answer?.kind).toBe("committed");
        return id;
      }),
    );
    const said = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
    const refused = outcomes.flatMap((outcome) => (outcome.status === "rejected" ? [outcome.reason] : []));
    expect([...(await business.ids())].sort()).toEqual(said.sort());
    // Else there was nothing to be seen.
    expect(refused.length).toBeGreaterThan(0);
    expect(String(refused[0])).toContain("pass prepare: false to postgres()");
  } finally {
    await naming.end();
    await direct.end();
    await bouncer.stop();
    await database.drop();
  }
});
