import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { idempotent, statusResource } from "../../src/adapters/node.ts";
import type { Store } from "../../src/core/store.ts";
import { systemRuntime } from "../../src/engine/runtime.ts";
import { createLatchkey, type Latchkey, type LatchkeyOptions, type Operation } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { type Fault, faultyStore } from "../../src/testing/index.ts";
import { freshDatabase } from "../support/database.ts";
import { deferred } from "../support/deferred.ts";

/** The invariants of the design, by number, over real sockets. Two servers on one store stand for two processes. */
const leaseMs = 300;
const folder = mkdtempSync(join(tmpdir(), "latchkey-invariants-"));
let database: Awaited<ReturnType<typeof freshDatabase>>;
let pool: pg.Pool;
const memory = memoryStore();

const stores: Record<string, () => Store> = {
  memory: () => memory,
  sqlite: () => sqliteStore(join(folder, "latchkey.db")),
  postgres: () => postgresStore(pool),
};

beforeAll(async () => {
  database = await freshDatabase();
  pool = new pg.Pool({ connectionString: database.url });
  await migrate(pool);
  await pool.query("CREATE TABLE business (row text NOT NULL)");
  const sqlite = new Database(join(folder, "latchkey.db"));
  sqlite.exec("CREATE TABLE business (row TEXT NOT NULL)");
  sqlite.close();
});
afterAll(async () => {
  await pool.end();
  await database.drop();
  rmSync(folder, { recursive: true, force: true });
});

/** A business table in the database of the records, on either store. */
async function writeRow(tx: unknown, text: string): Promise<void> {
  if (isSqlite(tx)) tx.prepare("INSERT INTO business (row) VALUES (?)").run(text);
  else await (tx as pg.PoolClient).query("INSERT INTO business (row) VALUES ($1)", [text]);
}

async function rowsOf(store: Store, key: string): Promise<string[]> {
  const sqlite = new Database(join(folder, "latchkey.db"));
  try {
    const like = `${key} %`;
    const rows =
      store.name === "sqlite"
        ? (sqlite.prepare("SELECT row FROM business WHERE row LIKE ?").all(like) as { row: string }[])
        : (await pool.query<{ row: string }>("SELECT row FROM business WHERE row LIKE $1", [like])).rows;
    return rows.map(({ row }) => row);
  } finally {
    sqlite.close();
  }
}

function isSqlite(tx: unknown): tx is Database.Database {
  return typeof (tx as { prepare?: unknown }).prepare === "function";
}

interface Running {
  readonly latchkey: Latchkey;
  readonly url: string;
  executions: number;
  post(key: string, options?: { body?: string; account?: string; signal?: AbortSignal }): Promise<Response>;
}

const opened: { server: Server; latchkey: Latchkey }[] = [];
afterEach(async () => {
  for (const { server, latchkey } of opened.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await latchkey.close();
  }
});

async function serve(
  options: Partial<LatchkeyOptions> & Pick<LatchkeyOptions, "store">,
  handler: (res: ServerResponse, execution: number) => unknown = (res, execution) => answer(res, execution),
): Promise<Running> {
  const latchkey = createLatchkey({
    tenant: (request) => request.header("x-account") ?? "acme",
    statusPath: "/status",
    leaseMs,
    ...options,
  });
  const running: Running = {
    latchkey,
    url: "",
    executions: 0,
    post: (key, { body = "{}", account = "acme", signal } = {}) =>
      fetch(`${running.url}/charges`, {
        method: "POST",
        headers: { "idempotency-key": key, "content-type": "application/json", "x-account": account },
        body,
        ...(signal === undefined ? {} : { signal }),
      }),
  };
  const status = statusResource(latchkey);
  const protect = idempotent(latchkey)((_req, res) => {
    running.executions += 1;
    return handler(res, running.executions);
  });
  const server = createServer(
    (req, res) => void (req.method === "GET" ? status(req, res) : protect(req, res)),
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  opened.push({ server, latchkey });
  return Object.assign(running, { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
}

function answer(res: ServerResponse, execution: number, status = 201): void {
  res
    .writeHead(status, { "content-type": "text/plain", location: "/charges/1" })
    .end(`execution ${execution}`);
}

async function codeOf(response: Response): Promise<string> {
  return ((await response.json()) as { code: string }).code;
}

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 10));
}

/** Runs a request whose process "dies": its engine is closed, so no heartbeat keeps the lease. */
async function die(store: Store, key: string, options: Partial<LatchkeyOptions>): Promise<Running> {
  const started = deferred();
  const dying = await serve({ store, ...options }, () => {
    started.resolve();
    return new Promise(() => {});
  });
  dying.post(key).catch(() => {});
  await started;
  dying.latchkey.engine.close();
  return dying;
}

describe.each(Object.entries(stores))("on %s", (storeName, open) => {
  const key = (name: string) => `${storeName}-${name}`;

  it("invariant 1: at most one execution holds a key, and at most one is effective", async () => {
    const first = await serve({ store: open() });
    const second = await serve({ store: open() });
    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, index) => (index % 2 === 0 ? first : second).post(key("one"))),
    );
    expect(first.executions + second.executions).toBe(1);
    expect(answers.filter(({ status }) => status === 201 || status === 409)).toHaveLength(60);
    expect((await first.post(key("one"))).headers.get("idempotency-replayed")).toBe("true");
    expect(first.executions + second.executions).toBe(1);
  });

  it("invariant 2: an answer reaches the client only after it is durable, and is replayed as it was sent", async () => {
    const settling = deferred();
    const inner = open();
    let settled = false;
    const store: Store = {
      ...faultyStore({ store: inner, runtime: systemRuntime, choose: () => ({ kind: "none" }) }),
      async settle(lease, settlement) {
        await settling;
        const answered = await inner.settle(lease, settlement);
        settled = true;
        return answered;
      },
    };
    const bytes = Uint8Array.from({ length: 256 }, (_, index) => index);
    const running = await serve({ store }, (res) => {
      res.writeHead(202, { "content-type": "application/x-thing", location: "/x", link: ["<a>", "<b>"] });
      res.write(bytes.subarray(0, 100));
      res.end(bytes.subarray(100));
    });
    const first = running.post(key("two")).then((response) => {
      expect(settled).toBe(true);
      return response;
    });
    await until(() => running.executions === 1);
    const early = await Promise.race([
      first,
      new Promise((resolve) => setTimeout(resolve, 100, "nothing yet")),
    ]);
    expect(early).toBe("nothing yet");
    settling.resolve();
    const sent = await first;
    const replay = await running.post(key("two"));
    expect(replay.headers.get("idempotency-replayed")).toBe("true");
    expect(replay.status).toBe(sent.status);
    for (const name of ["content-type", "location", "link", "idempotency-expires"]) {
      expect(replay.headers.get(name), name).toBe(sent.headers.get(name));
    }
    expect(new Uint8Array(await sent.arrayBuffer())).toEqual(bytes);
    expect(new Uint8Array(await replay.arrayBuffer())).toEqual(bytes);
  });

  it("invariant 3: a key never answers across tenants, neither its response nor its existence", async () => {
    const running = await serve({ store: open() });
    await running.post(key("three"), { account: "acme" });
    const other = await running.post(key("three"), { account: "evil", body: '{"other":1}' });
    expect(other.status).toBe(201);
    expect(await other.text()).toBe("execution 2");
    const status = (account: string, wanted: string) =>
      fetch(`${running.url}/status/${wanted}`, { headers: { "x-account": account } });
    const [foreign, absent] = await Promise.all([
      status("third", key("three")),
      status("third", key("nobody-used-this")),
    ]);
    expect(foreign.status).toBe(404);
    expect(await foreign.json()).toEqual(await absent.json());
    expect((await status("acme", key("three"))).status).toBe(201);
  });

  it("invariant 4: another request under a key is refused in every state, and changes nothing", async () => {
    const running = deferred();
    const states: Record<string, [Partial<LatchkeyOptions>, (res: ServerResponse) => unknown]> = {
      completed: [{}, (res) => answer(res, 1)],
      failed_retryable: [{}, (res) => answer(res, 1, 500)],
      unknown: [{ onServerError: "reconcile" }, (res) => answer(res, 1, 500)],
      in_progress: [{}, (res) => running.then(() => answer(res, 1))],
    };
    for (const [state, [options, handler]] of Object.entries(states)) {
      const wanted = key(`four-${state}`);
      const server = await serve({ store: open(), ...options }, handler);
      const first = server.post(wanted);
      if (state === "in_progress") await until(() => server.executions === 1);
      else await first;
      const before = (await server.latchkey.store.read({ scope: "acme", key: wanted })).record;
      expect(before?.state).toBe(state);
      const other = await serve({ store: open(), ...options }, handler);
      const misuse = await other.post(wanted, { body: '{"amount":900}' });
      expect(misuse.status, state).toBe(422);
      expect(await codeOf(misuse)).toBe("key-reused");
      expect(other.executions).toBe(0);
      const after = (await server.latchkey.store.read({ scope: "acme", key: wanted })).record;
      if (state !== "in_progress") expect(after, state).toEqual(before);
      if (state === "in_progress") running.resolve();
      await first;
    }
  });

  it("invariant 5: a stale owner can change nothing, and learns that it lost", async () => {
    const proceed = deferred();
    const wanted = key("five");
    const started = deferred();
    const stale = await serve({ store: open(), onCrash: "retry" }, async (res) => {
      started.resolve();
      await proceed;
      answer(res, 99);
    });
    const refused = stale.post(wanted);
    await started;
    stale.latchkey.engine.close(); // No heartbeat any more: as good as frozen.
    const other = await serve({ store: open(), onCrash: "retry" });
    let taken: Response | undefined;
    await until(async () => {
      taken = await other.post(wanted);
      return taken.status === 201;
    });
    proceed.resolve();
    expect(await codeOf(await refused)).toBe("lease-lost");
    expect(await (await other.post(wanted)).text()).toBe(await taken?.text());
  });

  // Memory has no transactions, and says so when a route wants them.
  if (storeName !== "memory") {
    it("invariant 5: not the business tables either, through an atomic phase", async () => {
      const stale = createLatchkey({ store: open(), tenant: "single", leaseMs, onCrash: "resume" });
      const other = createLatchkey({ store: open(), tenant: "single", leaseMs, onCrash: "resume" });
      const request = { tenant: "acme", key: key("five-business") };
      const write = (op: Operation, who: string) =>
        op.atomic("written", async (tx) => {
          await op.enqueue(tx, "invariant-5", who);
          await writeRow(tx, `${request.key} ${who}`);
          return who;
        });
      const proceed = deferred();
      const started = deferred();
      const lost = stale.run(request, async (op) => {
        stale.engine.close(); // No heartbeat any more: as good as frozen.
        started.resolve();
        await proceed;
        return write(op, "stale");
      });
      await started;
      let taken: unknown;
      await until(async () => {
        taken = await other.run(request, (op) => write(op, "fresh")).catch(() => undefined);
        return taken !== undefined;
      });
      proceed.resolve();
      await expect(lost).rejects.toMatchObject({ code: "lease-lost" });
      expect(await rowsOf(other.store, request.key)).toEqual([`${request.key} fresh`]);
      const messages = await other.store.outbox?.claim({ owner: "test", limit: 10, leaseMs: 1 });
      expect(messages?.map(({ payload }) => payload)).toEqual(['"fresh"']);
      await other.close();
      await stale.close();
    });
  }

  it("invariant 6: a key is never wedged, whatever its owner's death means", async () => {
    for (const onCrash of storeName === "memory"
      ? (["reconcile", "retry"] as const)
      : (["reconcile", "retry", "resume"] as const)) {
      const wanted = key(`six-${onCrash}`);
      await die(open(), wanted, { onCrash });
      const diedAt = performance.now();
      const next = await serve({ store: open(), onCrash });
      let last: Response | undefined;
      await until(async () => {
        last = await next.post(wanted);
        return last.status === 201 || (await codeOf(last)) !== "in-flight";
      });
      expect(performance.now() - diedAt, onCrash).toBeLessThan(leaseMs + 2_000);
      expect(last?.status, onCrash).toBe(onCrash === "reconcile" ? 409 : 201);
    }
  });

  it("invariant 7: an unknown outcome is never executed by a retry, and never evicted", async () => {
    const wanted = key("seven");
    const running = await serve({ store: open(), onServerError: "reconcile", retentionMs: 1 }, (res) =>
      answer(res, 1, 500),
    );
    await running.post(wanted);
    await new Promise((resolve) => setTimeout(resolve, 20)); // Past its retention.
    for (let retry = 0; retry < 5; retry += 1) {
      const response = await running.post(wanted);
      expect(response.status).toBe(409);
      expect(response.headers.get("retry-after")).not.toBeNull();
      expect(await codeOf(response)).toBe("outcome-unknown");
      await running.latchkey.reap();
      await running.latchkey.sweep();
    }
    expect(running.executions).toBe(1);
    expect((await running.latchkey.store.read({ scope: "acme", key: wanted })).record?.state).toBe("unknown");
  });

  it("invariant 8: if the store cannot answer, the handler does not run", async () => {
    const faults: Fault[] = [];
    const store = faultyStore({
      store: open(),
      runtime: systemRuntime,
      choose: () => faults.shift() ?? { kind: "none" },
    });
    const running = await serve({ store });
    faults.push({ kind: "failBefore" });
    const refused = await running.post(key("eight"));
    expect(refused.status).toBe(503);
    expect(await codeOf(refused)).toBe("store-unavailable");
    expect(running.executions).toBe(0);
    expect((await running.post(key("eight"))).status).toBe(201);
    faults.push({ kind: "failBefore" });
    const open503 = await serve({ store, onStoreDown: "open" });
    expect((await open503.post(key("eight-open"))).status).toBe(201);
    expect(open503.executions).toBe(1);
  });

  it("invariant 9: the reaper never deletes what is in progress, pending or unknown", async () => {
    const store = open();
    const running = deferred();
    const wanted = {
      progress: key("nine-progress"),
      pending: key("nine-pending"),
      unknown: key("nine-unknown"),
      done: key("nine-done"),
    };
    const slow = await serve({ store, retentionMs: 1 }, (res) => running.then(() => answer(res, 1)));
    const first = slow.post(wanted.progress);
    await until(() => slow.executions === 1);
    const failing = await serve({ store, retentionMs: 1, onServerError: "reconcile" }, (res) =>
      answer(res, 1, 500),
    );
    await failing.post(wanted.unknown);
    const done = await serve({ store, retentionMs: 1 });
    await done.post(wanted.done);
    const accepting = await serve({ store, retentionMs: 1, onInFlight: "accept" });
    expect((await accepting.post(wanted.pending)).status).toBe(202);
    await new Promise((resolve) => setTimeout(resolve, 20)); // Past the retention of all four.
    while ((await slow.latchkey.reap()).deleted > 0);
    const state = async (name: string) => (await store.read({ scope: "acme", key: name })).record?.state;
    expect(await state(wanted.progress)).toBe("in_progress");
    expect(await state(wanted.pending)).toBe("pending");
    expect(await state(wanted.unknown)).toBe("unknown");
    expect(await state(wanted.done)).toBeUndefined();
    running.resolve();
    await first;
  });

  it("invariant 10: a client that disconnects does not release the key, and its retry gets the answer", async () => {
    const gate = deferred();
    const running = await serve({ store: open() }, async (res, execution) => {
      await gate;
      answer(res, execution);
    });
    const hangUp = new AbortController();
    const gone = running.post(key("ten"), { signal: hangUp.signal }).catch(() => "gone");
    await until(() => running.executions === 1);
    hangUp.abort();
    expect(await gone).toBe("gone");
    expect((await running.post(key("ten"))).status).toBe(409);
    gate.resolve();
    let replay: Response | undefined;
    await until(async () => {
      replay = await running.post(key("ten"));
      return replay.status === 201;
    });
    expect(replay?.headers.get("idempotency-replayed")).toBe("true");
    expect(await replay?.text()).toBe("execution 1");
    expect(running.executions).toBe(1);
  });
});
