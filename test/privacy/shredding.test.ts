import { copyFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { currentOperation, type TenantSecrets } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import { reconciler } from "../../src/workers/workers.ts";
import { useFolder } from "../stores/sqlite-support.ts";
import { problemOf, ring, secondKey, service, storedAnswer } from "./support.ts";

const shred = { tenant: "acme", by: "ada" };

describe("a tenant that was shredded", () => {
  it("gets neither its old answers nor a second execution, and its new requests are stored as ever", async () => {
    const api = service({ store: memoryStore(), encryption: ring() });
    await api.post("k1", "hello");
    await api.post("k1", "hello", "globex");
    await api.latchkey.shredTenant(shred);

    const retry = await api.post("k1", "hello");
    expect(retry.status).toBe(409);
    expect(await problemOf(retry)).toMatchObject({ code: "response-not-stored", originalStatus: 201 });
    expect((await api.status("k1")).status).toBe(409);
    expect((await api.post("k1", "another")).status).toBe(422);
    expect((await api.post("k1", "hello", "globex")).status).toBe(201);
    expect(api.runs()).toBe(2);

    expect((await api.post("k2")).status).toBe(201);
    expect((await api.post("k2")).headers.get("idempotency-replayed")).toBe("true");
    expect(api.runs()).toBe(3);
    expect(api.events).toContainEqual({ type: "forgotten", tenantScope: "acme", how: "shredded", by: "ada" });
  });

  it("is shredded in every other process too, at the latest when it looks for the secret again", async () => {
    const clock = manualClock();
    const store = memoryStore({ clock: clock.now });
    const [here, there] = [1, 2].map(() => service({ store, encryption: ring(), runtime: clock }));
    await here?.post("k1");
    expect((await there?.post("k1"))?.status).toBe(201);
    await here?.latchkey.shredTenant(shred);
    await clock.advance(60_000);
    expect((await there?.post("k1"))?.status).toBe(409);
    // The one that comes back first makes a new secret, and all others find it.
    await there?.post("k2");
    expect((await here?.post("k2"))?.headers.get("idempotency-replayed")).toBe("true");
    expect([here?.runs(), there?.runs()]).toEqual([1, 1]);
  });

  it("gets its new answers from a process that still remembers the old secret", async () => {
    const store = memoryStore();
    const [remembering, other] = [1, 2].map(() => service({ store, encryption: ring() }));
    await remembering?.post("k1");
    await other?.latchkey.shredTenant(shred);
    await other?.post("k2");
    const replay = await remembering?.post("k2");
    expect(replay?.status).toBe(201);
    expect(replay?.headers.get("idempotency-replayed")).toBe("true");
  });

  it("has no answers left in this process's cache either", async () => {
    const api = service({ store: memoryStore(), encryption: ring(), cache: {} });
    await api.post("k1");
    expect((await api.post("k1")).status).toBe(201);
    await api.latchkey.shredTenant(shred);
    expect((await api.post("k1")).status).toBe(409);
  });

  it("does not go on with what was half done: it becomes unknown, and only its answer settles it", async () => {
    const path = `${place.folder}/half-done.db`;
    const store = sqliteStore(path);
    const encryption = ring();
    let mayFinish = false;
    const api = service({ store, encryption }, { onCrash: "resume", name: "charges" }, async () => {
      const op = currentOperation();
      await op.atomic("booked", () => ({ card: "4111" }));
      if (!mayFinish) throw new Error("not yet");
      return Response.json({});
    });
    await api.post("k1").catch(() => {});
    expect((await store.read({ scope: "acme", key: "k1" })).record?.state).toBe("failed_retryable");
    await api.latchkey.shredTenant(shred);
    mayFinish = true;
    expect((await problemOf(await api.post("k1"))).code).toBe("outcome-unknown");
    expect(api.runs()).toBe(1);

    const of = { tenant: "acme", key: "k1" };
    await expect(api.latchkey.resolve({ of, by: "ada", verdict: { kind: "not-executed" } })).rejects.toThrow(
      /cannot go on/,
    );
    await api.latchkey.resolve({ of, by: "ada", verdict: { kind: "completed", response: { status: 204 } } });
    expect((await api.post("k1")).status).toBe(204);
    expect(api.runs()).toBe(1);
    await api.latchkey.close();
  });

  it("has an operator asked about what nobody can settle, after as many questions as about anything else", async () => {
    const api = service(
      { store: memoryStore(), encryption: ring() },
      { name: "charges", reconcileAfterMs: 0, reconcile: () => ({ kind: "not-executed" }) },
      async () => {
        const op = currentOperation();
        await op.effect("booked", () => ({ card: "4111" }));
        await op.effect("charged", () => Promise.reject(new Error("lost")), { keyed: false });
        return new Response();
      },
    );
    await api.post("k1").catch(() => {});
    await api.latchkey.shredTenant(shred);
    const worker = reconciler(api.latchkey, { attemptsMax: 2, backoff: { baseMs: 0, capMs: 0 } });
    expect(await worker.runOnce()).toEqual({ resolved: 0, stillUnknown: 1, escalated: 0 });
    expect(await worker.runOnce()).toEqual({ resolved: 0, stillUnknown: 0, escalated: 1 });
    const { record } = await api.latchkey.store.read({ scope: "acme", key: "k1" });
    expect(record).toMatchObject({ state: "unknown", reason: expect.stringMatching(/cannot go on/) });
  });

  it("is not what a handler can say by itself: whatever a phase gives back is stored", async () => {
    const said = { latchkey: "shredded" };
    const api = service({ store: memoryStore(), encryption: ring() }, {}, async () =>
      Response.json(await currentOperation().effect("said", () => said)),
    );
    expect(await (await api.post("k1")).json()).toEqual(said);
    const { record } = await api.latchkey.store.read({ scope: "acme", key: "k1" });
    expect(record?.progress).toMatchObject([{ result: JSON.stringify(said) }]);
  });

  it("cannot be opened from a copy of the file that was made afterwards, with the master key", async () => {
    const encryption = ring();
    const api = service({ store: sqliteStore(place.path), encryption });
    await api.post("k1");
    const before = await copyOf("before.db", api.latchkey.store);
    await api.latchkey.shredTenant(shred);
    const after = await copyOf("after.db", api.latchkey.store);

    const withAfter = service({ store: sqliteStore(after), encryption: ring() });
    expect((await withAfter.post("k1")).status).toBe(409);
    expect(withAfter.runs()).toBe(0);
    // What is promised is no more than that: a copy from before holds the secret as well.
    const withBefore = service({ store: sqliteStore(before), encryption: ring() });
    expect((await withBefore.post("k1")).status).toBe(201);
    for (const { latchkey } of [api, withAfter, withBefore]) await latchkey.close();
  });

  it("needs a key for each tenant, and somebody who says so", async () => {
    const shared = service({ store: memoryStore(), encryption: ring({ perTenant: false }) });
    await expect(shared.latchkey.shredTenant(shred)).rejects.toThrow(/a key for each tenant/);
    await expect(service({ store: memoryStore() }).latchkey.shredTenant(shred)).rejects.toThrow(/encryption/);
    const api = service({ store: memoryStore(), encryption: ring() });
    await expect(api.latchkey.shredTenant({ tenant: "acme", by: "" })).rejects.toThrow(/who says so/);
    await expect(api.latchkey.shredTenant({ tenant: "", by: "ada" })).rejects.toThrow(/needs the tenant/);
  });
});

describe("the secret of a tenant", () => {
  it("is made once, however many processes need it first", async () => {
    const store = memoryStore();
    const services = Array.from({ length: 8 }, () => service({ store, encryption: ring() }));
    await Promise.all(services.map((api, index) => api.post(`k${index}`)));
    for (const [index] of services.entries()) {
      const replay = await services[(index + 1) % 8]?.post(`k${index}`);
      expect(replay?.headers.get("idempotency-replayed")).toBe("true");
    }
  });

  it("costs no round trip once it is known, not even when it is looked for again", async () => {
    const clock = manualClock();
    const inner = memoryStore({ clock: clock.now });
    const reads: string[] = [];
    const read = inner.notes.read.bind(inner.notes);
    inner.notes.read = (names) => {
      reads.push(...names);
      return read(names);
    };
    const api = service({ store: inner, encryption: ring(), runtime: clock });
    await api.post("k1");
    for (let i = 2; i < 20; i++) await api.post(`k${i}`);
    expect(reads).toHaveLength(1);
    expect(reads[0]).not.toContain("acme");
    await clock.advance(31_000);
    await api.post("k20");
    expect(reads).toHaveLength(2);
  });

  it("does not stand in its note in the clear, and opens for its own tenant only", async () => {
    const store = memoryStore();
    const written = new Map<string, string>();
    const write = store.notes.write.bind(store.notes);
    store.notes.write = (writes) => {
      for (const { name, note } of writes) if (note !== undefined) written.set(name, note.value);
      return write(writes);
    };
    const api = service({ store, encryption: ring() });
    await api.post("k1", "hello", "acme");
    const [name, value] = [...written][0] ?? [];
    expect(value).toMatch(/^lks1\./);
    await api.post("k1", "hello", "globex");
    const other = [...written.keys()].find((one) => one !== name) ?? "";
    const { notes } = await store.notes.read([other]);
    await store.notes.write([
      { name: other, expected: notes[0]?.version, note: { value: value ?? "", version: "moved" } },
    ]);
    const reading = service({ store, encryption: ring() });
    expect((await reading.post("k1", "hello", "globex")).status).toBe(503);
    expect(reading.runs()).toBe(0);
  });

  it("can live in a vault of your own, outside of the database", async () => {
    const vault = new Map<string, Uint8Array>();
    const tenantSecrets: TenantSecrets = {
      get: async (tenant) => vault.get(tenant),
      async create(tenant, secret) {
        const kept = vault.get(tenant) ?? secret;
        vault.set(tenant, kept);
        return kept;
      },
      remove: async (tenant) => void vault.delete(tenant),
    };
    const api = service({ store: sqliteStore(place.path), encryption: ring({ tenantSecrets }) });
    await api.post("k1");
    expect([...vault.keys()]).toEqual(["acme"]);
    const copy = await copyOf("copy.db", api.latchkey.store);
    await api.latchkey.shredTenant(shred);
    expect(vault.size).toBe(0);
    // The copy is from before, and still does not open.
    const reading = service({ store: sqliteStore(copy), encryption: ring({ tenantSecrets }) });
    expect((await reading.post("k1")).status).toBe(409);
    expect(reading.runs()).toBe(0);
    for (const { latchkey } of [api, reading]) await latchkey.close();
  });
});

describe("an answer of a tenant that was shredded, seen by a process with a retired key", () => {
  it("is an error that names the key, until the key is there again", async () => {
    const store = memoryStore();
    const encryption = ring();
    const api = service({ store, encryption });
    await api.post("k1");
    encryption.rotate(secondKey);
    encryption.retire("first");
    expect((await api.post("k1")).status).toBe(503);
    expect(api.storeErrors().at(-1)).toMatch(/"first"/);
    encryption.rotate({ id: "first", secret: Buffer.alloc(32, 1) });
    expect((await api.post("k1")).status).toBe(201);
    expect((await storedAnswer(store, "k1")).status).toBe(201);
    expect(api.runs()).toBe(1);
  });
});

const place = useFolder();

/** The database as a backup would have it. */
async function copyOf(name: string, store: unknown): Promise<string> {
  expect(store).toBeDefined();
  const target = `${place.folder}/${name}`;
  for (const suffix of ["", "-wal"]) {
    try {
      copyFileSync(place.path + suffix, target + suffix);
    } catch {
      // There is no log if everything is in the file.
    }
  }
  return target;
}
