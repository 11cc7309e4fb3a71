import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import type { NewMessage } from "../../src/core/outbox.ts";
import type { Progress } from "../../src/core/phase.ts";
import type { PhaseCommit, Store } from "../../src/core/store.ts";
import { type PostgresClient, postgresStore, type TransactionOf } from "../../src/stores/postgres/store.ts";
import { again, complete, eventually, leaseOf, request, send, useDatabase } from "./postgres-support.ts";

type Transaction = TransactionOf<PostgresClient>;

const database = useDatabase();

beforeAll(async () => {
  await database.query("CREATE TABLE ride (id text PRIMARY KEY)");
  await database.query("CREATE TABLE fare (ride text REFERENCES ride DEFERRABLE INITIALLY DEFERRED)");
});

const progress: Progress = [{ kind: "atomic", name: "ride_created", result: "1" }];
const message: NewMessage = {
  topic: "receipt.send",
  payload: '{"nul":"\\u0000","text":"ünï \\"☃\\" \\\\"}',
  partition: null,
  key: "lk_1",
  correlationId: "request-1",
  scope: "acme",
  traceparent: null,
  delayMs: 0,
};
const commit = (): PhaseCommit => ({ progress, onCrash: "resume", messages: [message] });

async function rides(): Promise<string[]> {
  return (await database.query<{ id: string }>("SELECT id FROM ride ORDER BY id")).map(({ id }) => id);
}

function transacting(store: Store<Transaction>): NonNullable<typeof store.transact> {
  if (store.transact === undefined) throw new Error("a Postgres store has transactions");
  return store.transact.bind(store);
}

describe.each(["pg", "postgres.js"] as const)("a phase through %s", (driver) => {
  let store: Store<Transaction>;
  let transact: ReturnType<typeof transacting>;
  let sql: postgres.Sql | undefined;

  beforeAll(() => {
    if (driver === "postgres.js") sql = postgres(database.url, { max: 4, onnotice: () => {} });
    const client: PostgresClient = sql ?? database.pool({ max: 4 });
    store = postgresStore(client);
    transact = transacting(store);
  });
  afterAll(() => sql?.end());

  /** A lease whose key names the ride that is written under it. */
  async function begun() {
    const lease = await leaseOf(store, request({ onCrash: "retry" }));
    const ride = `${driver}-${lease.key}`;
    return { lease, ride, insert: (tx: Transaction) => send(tx, "INSERT INTO ride VALUES ($1)", [ride]) };
  }

  async function expectNothingCommitted({ lease, ride }: Awaited<ReturnType<typeof begun>>): Promise<void> {
    expect(await rides()).not.toContain(ride);
    const { record } = await store.read(lease);
    expect(record).toMatchObject({ state: "in_progress", progress: [], onCrash: "retry" });
    expect(await database.query("SELECT FROM latchkey_outbox")).toHaveLength(0);
  }

  it("commits the business write, the progress and the messages together", async () => {
    const { lease, ride, insert } = await begun();
    const { record: before } = await store.read(lease);
    const answer = await transact(lease, insert, commit);
    expect(answer).toMatchObject({ kind: "committed", expiresAt: before?.expiresAt });
    expect(await rides()).toContain(ride);
    expect((await store.read(lease)).record).toMatchObject({
      state: "in_progress",
      progress,
      onCrash: "resume",
    });
    const claimed = await store.outbox?.claim({ owner: "relay", limit: 10, leaseMs: 1000 });
    const { delayMs: _, ...enqueued } = message;
    expect(claimed).toEqual([
      { ...enqueued, id: expect.any(String), attempts: 0, createdAt: expect.any(Number) },
    ]);
    const deliveries = claimed?.map(({ id }) => ({ kind: "delivered", id }) as const) ?? [];
    await store.outbox?.settle("relay", deliveries);
  });

  it("rolls everything back, and throws on what the business code threw", async () => {
    const phase = await begun();
    const refusal = new Error("no driver is free");
    const work = async (tx: Transaction) => {
      await phase.insert(tx);
      throw refusal;
    };
    await expect(transact(phase.lease, work, commit)).rejects.toBe(refusal);
    await expectNothingCommitted(phase);
  });

  it("rolls everything back when the result cannot be stored", async () => {
    const phase = await begun();
    const refusal = new Error("a result that is no JSON");
    const refusing = () => {
      throw refusal;
    };
    await expect(transact(phase.lease, phase.insert, refusing)).rejects.toBe(refusal);
    await expectNothingCommitted(phase);
  });

  it("is lost, with all that it wrote, when another owner has the key by then", async () => {
    const stale = await leaseOf(store, request({ leaseMs: 0, onCrash: "retry" }));
    const ride = `stale-${driver}`;
    const work = async (tx: Transaction) => {
      await send(tx, "INSERT INTO ride VALUES ($1)", [ride]);
      await leaseOf(store, again({ ...request(), ...stale, leaseMs: 60_000 }));
    };
    expect(await transact(stale, work, commit)).toEqual({ kind: "lost" });
    expect(await rides()).not.toContain(ride);
    expect(await database.query("SELECT FROM latchkey_outbox")).toHaveLength(0);
  });

  it("does not make heartbeats wait while the business code runs", async () => {
    const { lease, insert } = await begun();
    const work = async (tx: Transaction) => {
      await insert(tx);
      const answer = store.renew([lease], 60_000);
      expect(await Promise.race([answer, sleep(2_000, "waits")])).toEqual(["held"]);
    };
    expect(await transact(lease, work, () => ({ ...commit(), messages: [] }))).toMatchObject({
      kind: "committed",
    });
  });

  it("completes the record with the last business write; saying so again changes nothing", async () => {
    const { lease, insert } = await begun();
    const answer = await transact(lease, insert, () => ({ ...commit(), messages: [], response: complete }));
    if (answer.kind !== "committed") throw new Error(answer.kind);
    const { record } = await store.read(lease);
    expect(record).toMatchObject({ state: "completed", progress, response: { status: 201 } });
    expect(await store.settle(lease, complete)).toEqual({ kind: "settled", expiresAt: answer.expiresAt });
    expect(record?.expiresAt).toBe(answer.expiresAt);
    expect((await transact(lease, async () => {}, commit)).kind).toBe("lost");
  });

  it("counts times from its end, not from when the transaction began", async () => {
    const { lease } = await begun();
    const response = { ...complete, retentionMs: 1000 };
    const slowly = async (tx: Transaction) => send(tx, "SELECT pg_sleep(0.3)");
    const { now } = await store.read(lease);
    const answer = await transact(lease, slowly, () => ({ ...commit(), messages: [], response }));
    expect(answer).toMatchObject({ kind: "committed" });
    expect("expiresAt" in answer && answer.expiresAt - now).toBeGreaterThanOrEqual(1290);
  });

  const sabotages: Record<string, (tx: Transaction) => Promise<unknown>> = {
    "a statement failed and nobody minded": (tx) => send(tx, "SELECT 1 / 0").catch(() => {}),
    "the handler rolled back by itself": (tx) => send(tx, "ROLLBACK"),
    // postgres.js refuses to begin again by hand.
    ...(driver === "pg" && {
      "the handler rolled back and began anew": async (tx: Transaction) => {
        await send(tx, "ROLLBACK");
        await send(tx, "BEGIN");
      },
    }),
    "the connection was killed": async (tx) => {
      const [row] = (await send(tx, "SELECT pg_backend_pid() AS pid")) as [{ pid: number }];
      await database.query("SELECT pg_terminate_backend($1)", [row.pid]);
    },
    "the connection was killed under a statement": async (tx) => {
      const [row] = (await send(tx, "SELECT pg_backend_pid() AS pid")) as [{ pid: number }];
      const killed = sleep(50).then(() => database.query("SELECT pg_terminate_backend($1)", [row.pid]));
      await Promise.all([killed, send(tx, "SELECT pg_sleep(10)")]);
    },
    "a deferred constraint refuses the commit": (tx) => send(tx, "INSERT INTO fare VALUES ('no such ride')"),
  };

  it.each(Object.entries(sabotages))("is not reported as committed when %s", async (_, sabotage) => {
    const phase = await begun();
    const work = async (tx: Transaction) => {
      await phase.insert(tx);
      await sabotage(tx);
    };
    await expect(transact(phase.lease, work, commit)).rejects.toThrow(StoreError);
    await expectNothingCommitted(phase);
    // postgres.js reports the end of a connection once more, to the next statement on its successor.
    const reads = () => Promise.all(Array.from({ length: 4 }, () => store.read(phase.lease)));
    await eventually(() => reads().then(Boolean, () => false));
    // The pool has no broken connection in it, and none that is still in a transaction.
    for (const next of await Promise.all([begun(), begun(), begun(), begun()])) {
      const answer = await transact(next.lease, next.insert, () => ({ ...commit(), messages: [] }));
      expect(answer).toMatchObject({ kind: "committed" });
    }
  });

  it("that the handler committed by itself does not count as a phase", async () => {
    const phase = await begun();
    const work = async (tx: Transaction) => {
      await phase.insert(tx);
      await send(tx, "COMMIT");
    };
    await expect(transact(phase.lease, work, commit)).rejects.toThrow(
      /leave COMMIT and ROLLBACK to Latchkey/,
    );
    expect((await store.read(phase.lease)).record).toMatchObject({ state: "in_progress", progress: [] });
  });
});

it("a commit whose answer is lost is not reported as committed", async () => {
  const pool = database.pool({ max: 2 });
  const deaf = {
    query: (text: string, values: unknown[]) => pool.query(text, values),
    async connect() {
      const client = await pool.connect();
      const query = client.query.bind(client) as (...asked: unknown[]) => Promise<never>;
      return Object.assign(Object.create(client) as pg.PoolClient, {
        async query(statement: string | pg.QueryConfig, values?: unknown[]) {
          const answer = await query(statement, values);
          if (typeof statement === "string" || statement.text !== "COMMIT") return answer;
          const { connection } = client as unknown as { connection: { stream: { destroy(): void } } };
          connection.stream.destroy();
          throw new Error("Connection terminated unexpectedly");
        },
      });
    },
    on: pool.on.bind(pool),
  };
  const store = postgresStore(deaf as unknown as pg.Pool);
  const lease = await leaseOf(store, request());
  await expect(store.transact?.(lease, async () => "done", commit)).rejects.toThrow(StoreError);
  // It was committed after all: whoever reads it learns so.
  expect((await store.read(lease)).record).toMatchObject({ progress });
});

it("a phase through a real client is typed as that client", async () => {
  const throughPool = postgresStore(database.pool());
  const lease = await leaseOf(throughPool, request());
  const fromPool = await throughPool.transact?.(
    lease,
    async (tx) => {
      expectTypeOf(tx).toEqualTypeOf<pg.PoolClient>();
      return (await tx.query<{ n: number }>("SELECT 1 AS n")).rows[0]?.n;
    },
    commit,
  );
  expect(fromPool).toMatchObject({ kind: "committed", result: 1 });

  const sql = postgres(database.url);
  const fromSql = await postgresStore(sql).transact?.(
    lease,
    async (tx) => {
      expectTypeOf(tx).toEqualTypeOf<postgres.TransactionSql>();
      const [row] = await tx<{ n: number }[]>`SELECT 2 AS n`;
      return row?.n;
    },
    commit,
  );
  expect(fromSql).toMatchObject({ kind: "committed", result: 2 });
  await sql.end();
});
