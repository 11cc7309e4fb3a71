import { createHmac, randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { currentOperation } from "../../src/index.ts";
import { HashedKeys } from "../../src/privacy/hashed-keys.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { completer, reconciler } from "../../src/workers/workers.ts";
import { ring, service } from "./support.ts";

const hashKeys = Buffer.alloc(32, 7);
const clientKey = "customer-4711-march";

describe("hashed keys", () => {
  it("show the client's key nowhere but to the client", async () => {
    const store = memoryStore();
    let seen: string | undefined;
    const api = service({ store, hashKeys, profile: "stripe" }, {}, () => {
      seen = currentOperation().key;
      return new Response("done");
    });
    const first = await api.post(clientKey);
    const replay = await api.post(clientKey);
    expect(replay.headers.get("idempotent-replayed")).toBe("true");
    expect([first, replay].map((answer) => answer.headers.get("idempotency-key"))).toEqual([
      clientKey,
      clientKey,
    ]);
    expect(seen).toMatch(/^h1_[\w-]{43}$/);
    expect(api.runs()).toBe(1);
    expect((await store.read({ scope: "acme", key: clientKey })).record).toBeUndefined();
    expect(JSON.stringify(api.events)).not.toContain(clientKey);
    expect(api.events[0]).toMatchObject({ type: "reserved", key: expect.stringMatching(/^h1_[\w-]{43}$/) });
  });

  it("are one key for one scope, and another for any other scope or secret", async () => {
    const store = memoryStore();
    const api = service({ store, hashKeys });
    const other = service({ store, hashKeys: Buffer.alloc(32, 8) });
    await api.post("k1", "hello", "acme");
    await api.post("k1", "hello", "globex");
    await other.post("k1", "hello", "acme");
    expect([api.runs(), other.runs()]).toEqual([2, 1]);
    // A client that sends the name of a record does not get that record.
    const { key } = api.events[0] as { key: string };
    expect((await api.post(key, "hello", "acme")).headers.get("idempotency-replayed")).toBeNull();
  });

  it("are found by the status resource, run, resolve, bust and the audit trail", async () => {
    const store = memoryStore();
    const api = service({ store, hashKeys });
    await api.post(clientKey);
    expect((await api.status(clientKey)).status).toBe(201);
    const of = { tenant: "acme", key: clientKey };
    expect(await api.latchkey.bust({ of, by: "ada" })).toEqual({ kind: "busted" });
    const [entry] = await api.latchkey.audit({ scope: "acme", key: clientKey });
    expect(entry).toMatchObject({ by: "ada", key: expect.stringMatching(/^h1_/) });
    // By the name that the entry has, too.
    expect(await api.latchkey.audit({ scope: "acme", key: entry?.key ?? "" })).toHaveLength(1);

    const run = () => api.latchkey.run({ tenant: "acme", key: "job-1", input: 1 }, () => Math.random());
    expect(await run()).toBe(await run());
    expect((await store.read({ scope: "acme", key: "job-1" })).record).toBeUndefined();
  });

  it("are resolved by the client's key, and asked about by the reconciler", async () => {
    let verdict: "unknown" | "completed" = "unknown";
    const api = service(
      { store: memoryStore(), hashKeys },
      {
        name: "charges",
        onServerError: "reconcile",
        reconcileAfterMs: 0,
        reconcile: () =>
          verdict === "unknown"
            ? { kind: "unknown" }
            : { kind: "completed", response: { status: 200, body: "asked" } },
      },
      () => new Response("?", { status: 500 }),
    );
    await api.post("k1");
    await api.post("k2");
    const resolved = await api.latchkey.resolve({
      of: { tenant: "acme", key: "k1" },
      by: "ada",
      verdict: { kind: "completed", response: { status: 200, body: "told" } },
    });
    expect(resolved.kind).toBe("resolved");
    expect(await (await api.post("k1")).text()).toBe("told");
    verdict = "completed";
    expect(await reconciler(api.latchkey).runOnce()).toMatchObject({ resolved: 1 });
    expect(await (await api.post("k2")).text()).toBe("asked");
    expect(api.runs()).toBe(2);
  });

  it("have one name for the handler and for those who ask what it has done", async () => {
    const charged: string[] = [];
    const api = service(
      { store: memoryStore(), hashKeys },
      {
        name: "charges",
        onServerError: "reconcile",
        reconcileAfterMs: 0,
        reconcile: ({ key }) =>
          charged.includes(key)
            ? { kind: "completed", response: { status: 201, body: "charged" } }
            : { kind: "not-executed" },
      },
      () => {
        charged.push(currentOperation().key);
        return new Response("the answer was lost", { status: 500 });
      },
    );
    await api.post(clientKey);
    expect(await reconciler(api.latchkey).runOnce()).toMatchObject({ resolved: 1 });
    expect(await (await api.post(clientKey)).text()).toBe("charged");
    expect(charged).toHaveLength(1);
  });

  it("let the completer find its requests, which are kept only if they are sealed", async () => {
    const route = { onInFlight: "accept", keepRequestHeaders: ["x-tenant"] } as const;
    expect(() => service({ store: memoryStore(), hashKeys }, route)).toThrow(/pass encryption too/);

    const store = memoryStore();
    const api = service({ store, hashKeys, encryption: ring() }, route);
    await api.post(clientKey);
    const worker = completer(api.latchkey, {
      async dispatch({ target, method, headers, body }) {
        const sent = headers.map(([name, value]): [string, string] => [name, value]);
        await api.handle(
          new Request(`http://x${target}`, { method, headers: sent, body: Buffer.from(body) }),
        );
      },
    });
    const inStore = await store.claimResumable({
      limit: 9,
      attemptsMax: 9,
      backoff: { baseMs: 0, capMs: 0 },
    });
    expect(JSON.stringify(inStore)).not.toContain(clientKey);
    expect(await worker.runOnce()).toMatchObject({ dispatched: 1 });
    expect((await api.status(clientKey)).status).toBe(201);
    expect(api.runs()).toBe(1);
  });

  it("are HMAC-SHA256 of the length-prefixed scope and key, so that others can compute them", () => {
    for (const secret of [hashKeys, randomBytes(32)]) {
      const expected = createHmac("sha256", secret).update("4:acme2:k1").digest("base64url");
      expect(new HashedKeys(secret).nameOf({ scope: "acme", key: "k1" })).toBe(`h1_${expected}`);
    }
  });

  it("need a secret that is one", () => {
    expect(() => service({ store: memoryStore(), hashKeys: "too short" })).toThrow(/32 random bytes/);
  });
});
