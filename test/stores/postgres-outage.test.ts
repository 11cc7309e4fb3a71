import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import type { Store } from "../../src/core/store.ts";
import type { Query } from "../../src/stores/postgres/database.ts";
import { pgDatabase } from "../../src/stores/postgres/pg.ts";
import { Sessions, type SessionTiming } from "../../src/stores/postgres/session.ts";
import { pingSession } from "../../src/stores/postgres/statements/sessions.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { type PostgresServer, startPostgres, type TestDatabase } from "../support/postgres-server.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { again, complete, eventually, leaseOf, request } from "./postgres-support.ts";

let server: PostgresServer;
let database: TestDatabase;

beforeAll(async () => {
  server = await startPostgres();
  database = await server.createDatabase();
  const pool = new pg.Pool({ connectionString: database.url });
  await migrate(pool);
  await pool.end();
});

afterAll(() => server.remove());

it("while the server is down every request is refused, and after it is back the same stores work", async () => {
  const pool = new pg.Pool({ connectionString: database.url });
  const sql = postgres(database.url, { max: 2, backoff: () => 0.05 });
  const stores = {
    pg: postgresStore(pool),
    "pg, listening": postgresStore(pool, { listen: true }),
    "pg, owning": postgresStore(pool, { lock: "advisory" }),
    "postgres.js": postgresStore(sql, { listen: true }),
  };
  const first = request();
  await stores.pg.settle(await leaseOf(stores.pg, first), complete);
  for (const store of Object.values(stores)) await store.watch?.(first, () => {});

  await server.stop();
  for (const [name, store] of Object.entries(stores)) {
    await expect(store.reserve(request()), name).rejects.toThrow(StoreError);
    await expect(store.renew([{ ...request(), fence: 1 }], 1), name).rejects.toThrow(StoreError);
  }

  await server.start();
  for (const [name, store] of Object.entries(stores)) {
    // Connections that were open when the server stopped may each fail once more.
    await eventually(() => succeeds(store.reserve(again(first))));
    const lease = await leaseOf(store, request());
    expect(await store.settle(lease, complete), name).toMatchObject({ kind: "settled" });
    if (store.watch !== undefined) await eventually(() => isWoken(store));
    await store.close();
  }
  await pool.end();
  await sql.end();
});

async function succeeds(promise: Promise<unknown>): Promise<boolean> {
  return promise.then(
    () => true,
    () => false,
  );
}

/** Whether a settlement reaches a waiter now. Listening may still be on its way back, and each is told only once. */
async function isWoken(store: Store): Promise<boolean> {
  const lease = await leaseOf(store, request());
  let woken = false;
  const wake = () => {
    woken = true;
  };
  if (!(await succeeds(store.watch?.(lease, wake) ?? Promise.reject()))) return false;
  await store.settle(lease, complete);
  return succeeds(eventually(() => woken, 200));
}

describe("a session behind a network that fails", () => {
  const timing: SessionTiming = { pingMs: 20, timeoutMs: 200, backoffMs: 10, backoffMsMax: 40 };
  let proxy: TcpProxy;
  let pool: pg.Pool;

  beforeAll(async () => {
    proxy = await startTcpProxy({ host: "127.0.0.1", port: server.port });
    const url = new URL(database.url);
    url.port = String(proxy.port);
    pool = new pg.Pool({ connectionString: url.href });
  });
  afterAll(async () => {
    await pool.end();
    await proxy.close();
  });

  function sessions(through = pool, asked: (text: string) => void = () => {}) {
    const { push } = pgDatabase(through);
    if (push.kind !== "connection") throw new Error("a pg pool has connections");
    const { connect } = push;
    const seen = { ended: 0 };
    const kept = new Sessions({
      async connect() {
        const connection = await connect();
        const query: Query = (text, parameters) => {
          const answer = connection.query(text, parameters);
          asked(text);
          return answer as never;
        };
        return { ...connection, query };
      },
      owns: true,
      heard: () => {},
      opened: () => {},
      ended: () => {
        seen.ended += 1;
      },
      timing,
    });
    return { kept, seen };
  }

  function pauseFor(ms: number): void {
    const end = performance.now() + ms;
    while (performance.now() < end);
  }

  it("a connection that goes silent is noticed, and replaced when the network is back", async () => {
    const { kept, seen } = sessions();
    const first = await kept.ready();
    proxy.stall();
    await eventually(() => seen.ended === 1);
    expect(first.isAlive).toBe(false);
    // Nothing answers now: whoever asks is told so in bounded time, and later askers do not hang on the first.
    await expect(kept.ready()).rejects.toThrow(/did not answer within 200 ms/);
    await expect(kept.ready()).rejects.toThrow(/did not answer within 200 ms/);
    proxy.flow();
    await eventually(() => succeeds(kept.ready()));
    const second = await kept.ready();
    expect(second.number).toBeGreaterThan(first.number as number);
    expect(seen.ended).toBe(1);
    await kept.close();
  });

  it("a pause of this process is not taken for silence of the server", async () => {
    // The proxy is in this process and would pause as well.
    const direct = new pg.Pool({ connectionString: database.url });
    const { kept, seen } = sessions(direct, (text) => {
      // Begins when the question is under way and its timer is running, and outlasts both the timer and the answer.
      if (text === pingSession) queueMicrotask(() => pauseFor(2 * timing.timeoutMs));
    });
    await kept.ready();
    await new Promise((resolve) => setTimeout(resolve, 2 * timing.timeoutMs));
    expect(seen.ended).toBe(0);
    await kept.close();
    await direct.end();
  });

  it("a connection that is cut is noticed at once", async () => {
    const { kept, seen } = sessions();
    await kept.ready();
    proxy.cut();
    await eventually(() => seen.ended === 1, 1000);
    await kept.close();
  });
});

describe("a session over a connection that misbehaves", () => {
  const timing: SessionTiming = { pingMs: 5, timeoutMs: 50, backoffMs: 5, backoffMsMax: 5 };

  function fakeConnection(pidOf: () => number) {
    let end = (_cause: Error) => {};
    const connection = {
      destroyed: false,
      query: async () => [{ session: 1, pid: pidOf() }] as never,
      onNotification: () => {},
      onEnd: (ended: (cause: Error) => void) => {
        end = ended;
      },
      destroy: () => {
        if (connection.destroyed) return;
        connection.destroyed = true;
        end(new Error("destroyed"));
      },
    };
    return connection;
  }

  it("a session that moves between server processes does not count as one", async () => {
    let pid = 100;
    let ended = 0;
    const kept = new Sessions({
      connect: async () => fakeConnection(() => pid),
      owns: true,
      heard: () => {},
      opened: () => {},
      ended: () => {
        ended += 1;
      },
      timing,
    });
    const session = await kept.ready();
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(session.isAlive).toBe(true);
    pid = 101;
    await eventually(() => ended === 1);
    expect(session.isAlive).toBe(false);
    await kept.close();
  });

  it("goes on trying to come back, though somebody else asked in vain meanwhile", async () => {
    const connections: ReturnType<typeof fakeConnection>[] = [];
    let isNetworkUp = true;
    const kept = new Sessions({
      async connect() {
        await new Promise((resolve) => setTimeout(resolve, isNetworkUp ? 0 : 20));
        if (!isNetworkUp) throw new Error("no route to host");
        const connection = fakeConnection(() => 1);
        connections.push(connection);
        return connection;
      },
      owns: false,
      heard: () => {},
      opened: () => {},
      ended: () => {},
      timing,
    });
    await kept.ready();
    isNetworkUp = false;
    connections[0]?.destroy();
    await expect(kept.ready()).rejects.toThrow(/no route to host/);
    isNetworkUp = true;
    await eventually(() => connections.length === 2);
    await kept.close();
  });

  it("a connection that comes too late is closed", async () => {
    const late = fakeConnection(() => 1);
    const kept = new Sessions({
      connect: () => new Promise((resolve) => setTimeout(() => resolve(late), 100)),
      owns: false,
      heard: () => {},
      opened: () => {},
      ended: () => {},
      timing,
    });
    await expect(kept.ready()).rejects.toThrow(/did not answer within 50 ms/);
    await kept.close();
    await eventually(() => late.destroyed);
  });
});
