import { describe, expect, it } from "vitest";
import { currentOperation, type EffectContext } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import { useFolder } from "../stores/sqlite-support.ts";
import { ring, service } from "./support.ts";

const place = useFolder();

for (const [name, open] of [
  ["memory", () => memoryStore()],
  ["sqlite", () => sqliteStore(place.path)],
] as const) {
  describe(`forgetting a tenant, on the ${name} store`, () => {
    it("removes what is settled in batches until nothing is left, and nothing of anybody else", async () => {
      const api = service({ store: open() });
      const seed = (i: number) => api.latchkey.run({ tenant: "acme", key: `k${i}` }, () => i);
      await Promise.all(Array.from({ length: 1100 }, (_, i) => seed(i)));
      await api.post("k0", "hello", "globex");
      const progress: number[] = [];
      const forgotten = await api.latchkey.forgetTenant({
        tenant: "acme",
        by: "ada",
        onProgress: (removed) => void progress.push(removed),
      });
      expect(forgotten).toEqual({ removed: 1100, unsettled: 0 });
      expect(progress).toEqual([500, 1000, 1100]);
      expect(api.events).toContainEqual({
        type: "forgotten",
        tenantScope: "acme",
        how: "removed",
        by: "ada",
      });
      expect((await api.status("k7")).status).toBe(404);
      expect((await api.status("k0", "globex")).status).toBe(201);
      expect(await api.latchkey.forgetTenant({ tenant: "acme", by: "ada" })).toEqual({
        removed: 0,
        unsettled: 0,
      });
      await api.latchkey.close();
    });

    it("leaves what nobody knows the outcome of, with the secret that it is sealed with", async () => {
      const api = service({ store: open(), encryption: ring() }, { name: "charges" }, async (request) => {
        if (request.headers.get("idempotency-key") === "done") return new Response("done");
        const call = async ({ reference }: EffectContext) => {
          await reference("ch_1");
          throw new Error("no answer");
        };
        await currentOperation().effect("charge", call, { keyed: false });
        return new Response("charged");
      });
      await api.post("done");
      await api.post("doubtful").catch(() => {});
      const of = { tenant: "acme", key: "doubtful" };
      const forgotten = await api.latchkey.forgetTenant({ tenant: "acme", by: "ada" });
      expect(forgotten.unsettled).toBe(1);
      const { record } = await api.latchkey.store.read({ scope: "acme", key: "doubtful" });
      expect(record?.progress).toMatchObject([{ name: "charge", reference: "ch_1" }]);
      const verdict = { kind: "completed", response: { status: 200, body: "found out" } } as const;
      await api.latchkey.resolve({ of, by: "ada", verdict });
      expect(await (await api.post("doubtful")).text()).toBe("found out");
      expect((await api.latchkey.forgetTenant({ tenant: "acme", by: "ada" })).unsettled).toBe(0);
      expect((await api.status("doubtful")).status).toBe(404);
      await api.latchkey.close();
    });
  });
}

describe("forgetting a tenant", () => {
  it("also forgets what this process keeps, and the tenant's secret", async () => {
    const store = memoryStore();
    const names: string[] = [];
    const read = store.notes.read.bind(store.notes);
    store.notes.read = (asked) => {
      names.push(...asked);
      return read(asked);
    };
    const api = service({ store, encryption: ring(), cache: {} });
    await api.post("k1");
    await api.post("k1");
    expect(api.events.at(-1)).toMatchObject({ type: "reserved", cached: true });
    await api.latchkey.forgetTenant({ tenant: "acme", by: "ada" });
    expect((await read(names)).notes.every((note) => note === undefined)).toBe(true);
    await api.post("k1");
    expect(api.runs()).toBe(2);
    // What is stored from now on is cached as before.
    await api.post("k1");
    expect(api.events.at(-1)).toMatchObject({ type: "reserved", cached: true });
  });

  it("takes as long as it takes, however little time the store has for a request", async () => {
    const clock = manualClock();
    const store = memoryStore({ clock: clock.now });
    const api = service({ store, runtime: clock, storeTimeoutMs: 1_000 });
    await api.post("k1");
    const forget = store.forgetTenant.bind(store);
    store.forgetTenant = async (options) => {
      await new Promise<void>((resolve) => clock.setTimer(resolve, 600_000));
      return forget(options);
    };
    const forgotten = api.latchkey.forgetTenant({ tenant: "acme", by: "ada" });
    forgotten.catch(() => {});
    await clock.advance(1_200_000);
    expect(await forgotten).toEqual({ removed: 1, unsettled: 0 });
    expect(api.events).toContainEqual(expect.objectContaining({ type: "forgotten", how: "removed" }));
  });

  it("lets its limits begin anew", async () => {
    const store = memoryStore();
    const api = service({ store, limits: { newKeys: { max: 1, perMs: 3_600_000 } } });
    await api.post("k1");
    expect((await api.post("k2")).status).toBe(429);
    const name = "limits:acme";
    await expect.poll(async () => (await store.notes.read([name])).notes[0]).toBeDefined();
    await api.latchkey.forgetTenant({ tenant: "acme", by: "ada" });
    expect((await store.notes.read([name])).notes).toEqual([undefined]);
  });

  it("needs a tenant, and somebody who says so", async () => {
    const { latchkey } = service({ store: memoryStore() });
    await expect(latchkey.forgetTenant({ tenant: "", by: "ada" })).rejects.toThrow(/needs the tenant/);
    await expect(latchkey.forgetTenant({ tenant: "acme", by: "" })).rejects.toThrow(/who says so/);
  });
});
