import pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { idempotent } from "../../src/adapters/express.ts";
import { createLatchkey, currentOperation, type Latchkey, type LatchkeyEvent } from "../../src/index.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { reaper, reconciler, relay, sweeper } from "../../src/workers/workers.ts";
import { freshDatabase } from "../support/database.ts";
import { request } from "../support/reserve-request.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { codeOf, type Node, startNode } from "./support.ts";

/**
 * What a design review of this pattern asks for, item by item, on two application nodes over one Postgres.
 */
describe("the verification checklist", () => {
  let database: Awaited<ReturnType<typeof freshDatabase>>;
  let proxy: TcpProxy;
  let pool: pg.Pool;
  let direct: pg.Pool;
  let latchkeys: Latchkey[];
  let nodes: [Node, Node];
  let events: LatchkeyEvent[] = [];
  const created: string[] = [];
  let handler: () => Promise<number>;
  let sequence = 0;
  const newKey = () => `checklist-${++sequence}`;

  beforeAll(async () => {
    database = await freshDatabase();
    const { hostname, port, username, pathname } = new URL(database.url);
    proxy = await startTcpProxy({ host: hostname, port: Number(port) });
    direct = new pg.Pool({ connectionString: database.url });
    pool = new pg.Pool({
      host: "127.0.0.1",
      port: proxy.port,
      user: username,
      database: pathname.slice(1),
      max: 20,
    });
    await migrate(direct);
    latchkeys = [node(), node()];
    nodes = (await Promise.all(
      latchkeys.map((latchkey) => startNode(latchkey, (app) => routes(latchkey, app))),
    )) as [Node, Node];
  });
  afterAll(async () => {
    for (const one of nodes) await one.close();
    for (const latchkey of latchkeys) await latchkey.close({ drainMs: 0 });
    await pool.end();
    await direct.end();
    await proxy.close();
    await database.drop();
  });
  beforeEach(() => {
    created.length = 0;
    events = [];
    handler = async () => 201;
  });

  function node(): Latchkey {
    return createLatchkey({
      store: postgresStore(pool),
      // The account and the session come from what authenticates the caller, never from the body.
      tenant: (request) => {
        const account = request.header("x-account");
        const session = request.header("x-session");
        return session === undefined ? account : `${account}/${session}`;
      },
      leaseMs: 500,
      storeTimeoutMs: 400,
      statusPath: "/idempotency",
      onEvent: (event) => events.push(event),
    });
  }

  function routes(latchkey: Latchkey, app: Parameters<Parameters<typeof startNode>[1]>[0]): void {
    const create = async (_req: unknown, res: { status(code: number): { json(body: unknown): void } }) => {
      const { key, scope } = currentOperation();
      created.push(`${scope} ${key}`);
      res.status(await handler()).json({ resource: created.length, scope });
    };
    app.post("/payments", idempotent(latchkey), create);
    app.post("/payments/waiting", idempotent(latchkey, { onInFlight: "wait" }), create);
    app.post("/payments/brief", idempotent(latchkey, { retentionMs: 1 }), create);
    app.post(
      "/payments/dated",
      idempotent(latchkey, { lateArrivals: "reject", retentionMs: 60_000 }),
      create,
    );
    app.use("/flow", idempotent(latchkey));
    for (const step of ["intents", "charges", "receipts"]) app.post(`/flow/${step}`, create);
    app.patch("/flow/intents/1", create);
  }

  describe("key reservation and tenant isolation", () => {
    it("two identical requests at once: one creates the resource, both get the same response", async () => {
      const key = newKey();
      handler = async () => {
        await new Promise((resolve) => setTimeout(resolve, 50));
        return 201;
      };
      const both = await Promise.all([0, 1].map(() => nodes[0].post("/payments/waiting", { key })));
      const bodies = await Promise.all(both.map((response) => response.text()));
      expect(both.map(({ status }) => status)).toEqual([201, 201]);
      expect(bodies[1]).toBe(bodies[0]);
      expect(created).toHaveLength(1);
    });

    it("the same key with another body is 422", async () => {
      const key = newKey();
      await nodes[0].post("/payments", { key });
      expect((await nodes[0].post("/payments", { key, body: { amount: 11 } })).status).toBe(422);
      expect(created).toHaveLength(1);
    });

    it("two tenants with the same key have results of their own", async () => {
      const key = newKey();
      const first = await nodes[0].post("/payments", { key, tenant: "acme" });
      const second = await nodes[0].post("/payments", { key, tenant: "zenith" });
      expect(second.headers.get("idempotency-replayed")).toBeNull();
      expect(await first.json()).toMatchObject({ scope: "acme" });
      expect(await second.json()).toMatchObject({ scope: "zenith" });
      expect(created).toHaveLength(2);
    });

    it("the same key and payload from another session is not answered from the first one's record", async () => {
      const key = newKey();
      await nodes[0].post("/payments", { key, headers: { "x-session": "one" } });
      const other = await nodes[0].post("/payments", { key, headers: { "x-session": "two" } });
      expect(other.headers.get("idempotency-replayed")).toBeNull();
      const nobody = await fetch(`${nodes[0].url}/payments`, {
        method: "POST",
        headers: { "idempotency-key": key },
      });
      expect(nobody.status).toBe(401);
    });

    it("the unique constraint is on tenant and key together", async () => {
      const { rows } = await direct.query<{ columns: string }>(
        `SELECT string_agg(a.attname, ',' ORDER BY k.position) AS columns
           FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k (number, position), pg_attribute a
          WHERE i.indrelid = 'latchkey_records'::regclass AND i.indisprimary
            AND a.attrelid = i.indrelid AND a.attnum = k.number
          GROUP BY i.indexrelid`,
      );
      expect(rows).toEqual([{ columns: "scope,key" }]);
    });
  });

  describe("concurrent and distributed behaviour", () => {
    it("of many requests to different nodes one performs the side effect; the 409s say when to come back", async () => {
      const key = newKey();
      let finish = () => {};
      const isTime = new Promise<void>((resolve) => {
        finish = resolve;
      });
      handler = async () => {
        await isTime;
        return 201;
      };
      // It is executed for as long as anybody else has no answer.
      let answered = 0;
      const answers = await Promise.all(
        Array.from({ length: 30 }, async (_, index) => {
          const answer = await (nodes[index % 2] as Node).post("/payments", { key });
          answered += 1;
          if (answered === 29) finish();
          return answer;
        }),
      );
      expect(created).toHaveLength(1);
      const refused = answers.filter(({ status }) => status === 409);
      expect(refused).toHaveLength(29);
      for (const answer of refused) expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0);
    });

    it("a request without a key is 400", async () => {
      const answer = await nodes[0].post("/payments");
      expect(answer.status).toBe(400);
      expect(await codeOf(answer)).toBe("key-missing");
      expect(created).toHaveLength(0);
    });
  });

  describe("failure handling and resilience", () => {
    it("a worker that dies between the side effect and its record does not cause a second one", async () => {
      const [latchkey] = latchkeys as [Latchkey];
      const effects = new Set<string>();
      const deliveries: string[] = [];
      await latchkey.run({ tenant: "acme", key: newKey() }, (op) =>
        op.atomic("intent", async (tx) => {
          await op.enqueue(tx, "charge", { amount: 10 });
        }),
      );
      const deliver = async ({ key }: { readonly key: string }) => {
        deliveries.push(key);
        effects.add(key);
      };
      const { outbox } = latchkey.store;
      if (outbox === undefined) throw new Error("no outbox");
      const dying = { ...latchkey, engine: latchkey.engine, store: { outbox: dyingAtSettle(outbox) } };
      const crashed = relay(dying as unknown as Latchkey, {
        deliver,
        leaseMs: 500,
        deliverTimeoutMs: 100,
      }).runOnce();
      await expect(crashed).rejects.toThrow("the worker died");
      const successor = relay(latchkey, { deliver, leaseMs: 500, deliverTimeoutMs: 100 });
      await untilTrue(async () => (await successor.runOnce()).delivered === 1);
      expect(deliveries).toHaveLength(2);
      expect(effects.size).toBe(1);
    });

    it("what such a crash leaves unknown is reconciled, not repeated", async () => {
      const [latchkey] = latchkeys as [Latchkey];
      const key = newKey();
      const provider: string[] = [];
      const pay = (isAnswerLost: boolean) =>
        latchkey.run({ tenant: "acme", key, policy: { name: "pay", reconcileAfterMs: 0 } }, (op) =>
          op.effect(
            "charge",
            ({ idempotencyKey }) => {
              provider.push(idempotencyKey);
              if (isAnswerLost) throw new Error("the answer was lost");
              return provider.length;
            },
            { keyed: false },
          ),
        );
      await expect(pay(true)).rejects.toThrow("the answer was lost");
      await expect(pay(false)).rejects.toMatchObject({ code: "outcome-unknown" });
      const counts = await reconciler(latchkey, {
        hooks: {
          pay: ({ phases }) => {
            const at = provider.indexOf(phases[0]?.idempotencyKey ?? "");
            return at < 0 ? { kind: "not-executed" } : { kind: "effect-done", result: at + 1 };
          },
        },
      }).runOnce();
      expect(counts).toMatchObject({ resolved: 1 });
      expect(await pay(false)).toBe(1);
      expect(provider).toHaveLength(1);
    });

    it("without the key store the endpoint fails closed, before anything happens", async () => {
      proxy.refuse();
      proxy.cut();
      try {
        const answer = await nodes[0].post("/payments", { key: newKey() });
        expect(answer.status).toBe(503);
        expect(created).toHaveLength(0);
      } finally {
        proxy.accept();
      }
      expect(
        await untilTrue(async () => (await nodes[0].post("/payments", { key: newKey() })).status === 201),
      ).toBe(true);
    });

    it("after a 500 the retry executes again instead of replaying it", async () => {
      const key = newKey();
      handler = async () => 500;
      expect((await nodes[0].post("/payments", { key })).status).toBe(500);
      handler = async () => 201;
      const retry = await nodes[1].post("/payments", { key });
      expect(retry.status).toBe(201);
      expect(retry.headers.get("idempotency-replayed")).toBeNull();
      expect(created).toHaveLength(2);
    });

    it("every step of a flow that changes state insists on the key", async () => {
      for (const step of ["intents", "charges", "receipts"]) {
        expect((await nodes[0].post(`/flow/${step}`)).status).toBe(400);
        expect((await nodes[0].post(`/flow/${step}`, { key: newKey() })).status).toBe(201);
      }
      expect((await nodes[0].post("/flow/intents/1", { method: "PATCH" })).status).toBe(400);
      expect(created).toHaveLength(3);
    });
  });

  describe("lifecycle", () => {
    it("a retry after the retention is a new request, and says so by not being a replay", async () => {
      const key = newKey();
      await nodes[0].post("/payments/brief", { key });
      let second: Response | undefined;
      await untilTrue(async () => {
        second = await nodes[0].post("/payments/brief", { key });
        return second.headers.get("idempotency-replayed") === null;
      });
      expect(second?.status).toBe(201);
      expect(created).toHaveLength(2);
    });

    it("where that must not happen, a key that is older than the retention is refused", async () => {
      const hourAgo = (Date.now() - 3_600_000).toString(16).padStart(12, "0");
      const key = `${hourAgo.slice(0, 8)}-${hourAgo.slice(8)}-7000-8000-000000000001`;
      const answer = await nodes[0].post("/payments/dated", { key });
      expect(answer.status).toBe(412);
      expect(created).toHaveLength(0);
    });

    it("the reaper deletes expired keys while others are reserved, settled and held under lock", async () => {
      const [latchkey] = latchkeys as [Latchkey];
      const keys = Array.from({ length: 20 }, newKey);
      for (const key of keys) await nodes[0].post("/payments/brief", { key });
      const held = await direct.connect();
      try {
        // A row that somebody else holds must not stop the reaper, nor the reaper anybody else.
        await held.query("BEGIN");
        await held.query("SELECT 1 FROM latchkey_records WHERE key = $1 FOR UPDATE", [keys[0]]);
        let deleted = 0;
        const worker = reaper(latchkey, { batch: 5 });
        await untilTrue(async () => {
          deleted += (await worker.runOnce()).deleted;
          expect((await nodes[1].post("/payments", { key: newKey() })).status).toBe(201);
          return deleted >= keys.length - 1;
        });
      } finally {
        await held.query("ROLLBACK");
        held.release();
      }
    });
  });

  describe("observability and detection", () => {
    it("duplicates and replays are counted, for each tenant", async () => {
      const key = newKey();
      for (let index = 0; index < 3; index += 1) await nodes[0].post("/payments", { key, tenant: "counted" });
      const outcomes = events.flatMap((event) =>
        event.type === "reserved" && event.scope === "counted" ? [event.outcome] : [],
      );
      expect(outcomes).toEqual(["created", "replay", "replay"]);
    });

    it("the sweeper ends a stuck key soon after its lease", async () => {
      const [latchkey] = latchkeys as [Latchkey];
      const id = { scope: "acme", key: newKey() };
      await latchkey.store.reserve(request({ ...id, owner: "a process that died", leaseMs: 200 }));
      const since = Date.now();
      const worker = sweeper(latchkey);
      await untilTrue(async () => {
        await worker.runOnce();
        return (await latchkey.store.read(id)).record?.state === "unknown";
      });
      expect(Date.now() - since).toBeLessThan(2_000);
    });

    it("one tenant's stored response cannot be read by another", async () => {
      const key = newKey();
      await nodes[0].post("/payments", { key, tenant: "acme" });
      const read = (tenant: string) => nodes[1].post(`/idempotency/${key}`, { tenant, method: "GET" });
      expect((await read("acme")).status).toBe(201);
      expect((await read("zenith")).status).toBe(404);
    });
  });
});

async function untilTrue(condition: () => Promise<boolean>): Promise<boolean> {
  const giveUpAt = Date.now() + 10_000;
  while (!(await condition())) {
    if (Date.now() > giveUpAt) throw new Error("waited in vain");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return true;
}

/** A store's outbox, as a relay sees it that dies when it has delivered and before it can say so. */
function dyingAtSettle(
  outbox: NonNullable<Latchkey["store"]["outbox"]>,
): NonNullable<Latchkey["store"]["outbox"]> {
  return {
    claim: (options) => outbox.claim(options),
    settle: () => Promise.reject(new Error("the worker died")),
    counts: () => outbox.counts(),
    deadLetters: (options) => outbox.deadLetters(options),
    requeue: (ids, by) => outbox.requeue(ids, by),
    prune: (options) => outbox.prune(options),
  };
}
