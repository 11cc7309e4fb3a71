import pg from "pg";
import postgres from "postgres";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import { pgDatabase } from "../../src/stores/postgres/pg.ts";
import { Sessions, type SessionTiming } from "../../src/stores/postgres/session.ts";
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
  const before = new Map<string, { first: ReturnType<typeof request>; woken: boolean }>();
  for (const [name, store] of Object.entries(stores)) {
    const first = request();
    await store.settle(await leaseOf(store, first), complete);
    await store.watch?.(first, () => {});
    before.set(name, { first, woken: false });
  }
  await server.stop();
  for (const [name, store] of Object.entries(stores)) {
    await expect(store.reserve(request()), name).rejects.toThrow(StoreError);
    await expect(store.renew([{ ...request(), fence: 1 }], 1), name).rejects.toThrow(StoreError);
  }
  await server.start();
  for (const [name, store] of Object.entries(stores)) {
    const first = before.get(name)?.first ?? request();
    // Connections that were open when the server stopped may each fail once more.
    await eventually(() =>
      store.reserve(again(first)).then(
        ({ kind }) => kind === "replay",
        () => false,
      ),
    );
    expect(await store.settle(await leaseOf(store, request()), complete), name).toMatchObject({
      kind: "settled",
    });
  }
  for (const store of Object.values(stores)) {
    if (store.watch === undefined) continue;
    const { watch } = store;
    let woken = false;
    const lease = await leaseOf(store, request());
    await eventually(() =>
      watch(lease, () => {
        woken = true;
      }).then(
        () => true,
        () => false,
      ),
    );
    // The driver's listener may still be on its way back; a settlement is told once, so renew what can be watched.
    await eventually(async () => {
      const next = await leaseOf(store, request());
      await watch(next, () => {
        woken = true;
      });
      await store.settle(next, complete);
      await new Promise((resolve) => setTimeout(resolve, 50));
      return woken;
    });
    await store.close();
  }
  await pool.end();
  await sql.end();
});

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

  function sessions() {
    const { push } = pgDatabase(pool);
    if (push.kind !== "connection") throw new Error("a pg pool has connections");
    const seen = { ended: 0 };
    const kept = new Sessions({
      connect: push.connect,
      owns: true,
      heard: () => {},
      ended: () => {
        seen.ended += 1;
      },
      timing,
    });
    return { kept, seen };
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
    await eventually(() =>
      kept.ready().then(
        (session) => session.isAlive,
        () => false,
      ),
    );
    const second = await kept.ready();
    expect(second.number).toBeGreaterThan(first.number as number);
    expect(seen.ended).toBe(1);
    await kept.close();
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

  it("a connection that comes too late is closed", async () => {
    const late = fakeConnection(() => 1);
    const kept = new Sessions({
      connect: () => new Promise((resolve) => setTimeout(() => resolve(late), 100)),
      owns: false,
      heard: () => {},
      ended: () => {},
      timing,
    });
    await expect(kept.ready()).rejects.toThrow(/did not answer within 50 ms/);
    await kept.close();
    await eventually(() => late.destroyed);
  });
});
