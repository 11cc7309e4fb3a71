import { describe, expect, it } from "vitest";
import type { StoredResponse } from "../../src/core/response.ts";
import type { Store } from "../../src/core/store.ts";
import type { Arrival, Verdict } from "../../src/engine/verdict.ts";
import { ConfigError, createLatchkey } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { useFolder } from "../stores/sqlite-support.ts";
import { asked, askedFor, complete, keys, slowStore } from "./caching.ts";
import { answered, arrival, bodyOf, cluster, execution } from "./cluster.ts";

const retentionMs = 60_000;

describe("an answer that this process knows", () => {
  it("is replayed without asking the store, byte for byte, and the event says so", async () => {
    const all = cluster({ cache: {} });
    const engine = all.engine();
    await complete(engine);
    expect(
      await asked(all, async () => {
        for (let times = 0; times < 10; times += 1)
          expect(bodyOf(await engine.arrive(arrival()))).toBe("done");
      }),
    ).toBe(0);
    expect(all.events.at(-1)).toMatchObject({
      type: "reserved",
      outcome: "replay",
      joined: false,
      cached: true,
    });
  });

  it("because another process executed it, is asked for once", async () => {
    const all = cluster({ cache: {} });
    await complete(all.engine());
    const engine = all.engine();
    expect(await askedFor(all, engine, [arrival()])).toBe(1);
    expect(all.events.at(-1)).toMatchObject({ outcome: "replay", cached: false });
    expect(await askedFor(all, engine, [arrival(), arrival()])).toBe(0);
  });

  it("is asked for each time where there is no cache", async () => {
    const all = cluster();
    const engine = all.engine();
    await complete(engine);
    expect(await askedFor(all, engine, [arrival(), arrival()])).toBe(2);
  });

  it("is not given to another request under its key: the store refuses that, and the answer stays", async () => {
    const all = cluster({ cache: {} });
    const engine = all.engine();
    await complete(engine);
    const wrong = arrival({}, { fingerprint: "v1:b" });
    expect(
      await asked(all, async () => expect(await engine.arrive(wrong)).toEqual({ kind: "mismatch" })),
    ).toBe(1);
    expect(await askedFor(all, engine, [arrival()])).toBe(0);
  });

  it("is not given to another tenant, however its scope and key read when they are put together", async () => {
    const all = cluster({ cache: {} });
    const engine = all.engine();
    const ids = [
      { scope: "acme", key: "1" },
      { scope: "acme1", key: "" },
      { scope: "cme", key: "1a" },
      { scope: "1acme", key: "1" },
      { scope: "acme 1", key: "1" },
    ];
    for (const id of ids) await complete(engine, arrival({}, id), JSON.stringify(id));
    for (const id of ids) expect(bodyOf(await engine.arrive(arrival({}, id)))).toBe(JSON.stringify(id));
    expect((await engine.arrive(arrival({}, { scope: "other", key: "1" }))).kind).toBe("execute");
  });

  it("is given to a request that is to be accepted, and never to a worker's claim", async () => {
    const all = cluster({ cache: {} });
    const engine = all.engine();
    const accepting = arrival({ onInFlight: "accept", onCrash: "retry" });
    expect((await engine.arrive(accepting)).kind).toBe("accepted");
    await complete(engine, { ...accepting, isClaim: true });
    expect(await askedFor(all, engine, [accepting])).toBe(0);
    expect(await askedFor(all, engine, [{ ...accepting, isClaim: true }])).toBe(1);
  });

  it("is the one that was stored, even if the handler goes on using its buffer", async () => {
    const engine = cluster({ cache: {} }).engine();
    const body = new TextEncoder().encode("done");
    const response: StoredResponse = { kind: "full", status: 201, headers: [], body };
    await execution(await engine.arrive(arrival())).settle({ kind: "answered", response });
    body.fill(0);
    expect(bodyOf(await engine.arrive(arrival()))).toBe("done");
  });

  it("is not known if the key was released, or its outcome is in doubt", async () => {
    const all = cluster({ cache: {} });
    const engine = all.engine();
    await execution(await engine.arrive(arrival())).settle(answered(503));
    expect(await asked(all, async () => execution(await engine.arrive(arrival())))).toBe(1);
    const doubtful = arrival({ onServerError: "reconcile" }, { key: "doubtful" });
    await execution(await engine.arrive(doubtful)).settle(answered(503));
    expect(await asked(all, async () => expect((await engine.arrive(doubtful)).kind).toBe("unknown"))).toBe(
      1,
    );
  });
});

describe("the end of an answer's retention", () => {
  const dayMs = 86_400_000;

  it.each([
    ["agree", 0],
    ["are a day apart, the store's behind", -dayMs],
    ["are a day apart, the store's ahead", dayMs],
  ])("ends it here too, and not much before, where the clocks %s", async (_, aheadMs) => {
    const all = cluster({ cache: {}, store: ({ now }) => memoryStore({ clock: () => now() + aheadMs }) });
    const [first, second] = [all.engine(), all.engine()];
    await complete(first, arrival({ retentionMs }));
    await all.clock.advance(retentionMs / 2);
    await second.arrive(arrival());
    await all.clock.advance(retentionMs / 2 - 2);
    for (const engine of [first, second]) expect(await askedFor(all, engine, [arrival()])).toBe(0);
    await all.clock.advance(2);
    for (const engine of [first, second]) {
      expect(await asked(all, async () => engine.arrive(arrival()))).toBe(1);
    }
    expect(
      all.events.filter((event) => event.type === "reserved" && event.outcome === "expired_retry"),
    ).toHaveLength(1);
  });

  it("leaves the last millisecond to the store, which counts in whole ones", async () => {
    const all = cluster({ cache: {} });
    const engine = all.engine();
    await complete(engine, arrival({ retentionMs }));
    await all.clock.advance(retentionMs - 1);
    expect(await askedFor(all, engine, [arrival(), arrival()])).toBe(2);
  });

  it("is counted from before the store was asked: its answer may have been long on its way", async () => {
    const slow = slowStore();
    const all = cluster({ cache: {}, store: ({ now }) => slow.over(memoryStore({ clock: now })) });
    await complete(all.engine(), arrival({ retentionMs }));
    const engine = all.engine();
    slow.hold();
    const replay = engine.arrive(arrival());
    await all.clock.advance(4_000);
    slow.release();
    expect(bodyOf(await replay)).toBe("done");
    await all.clock.advance(retentionMs - 4_000 - 2);
    expect(await askedFor(all, engine, [arrival()])).toBe(0);
    await all.clock.advance(2);
    expect((await engine.arrive(arrival())).kind).toBe("execute");
  });

  it("may be set by the store's administrator: every five minutes the store is asked again", async () => {
    const all = cluster({ cache: {} });
    const engine = all.engine();
    await complete(engine);
    await all.clock.advance(300_000 - 2);
    expect(await askedFor(all, engine, [arrival()])).toBe(0);
    await all.clock.advance(2);
    expect(await askedFor(all, engine, [arrival()])).toBe(1);
    expect(await askedFor(all, engine, [arrival()])).toBe(0);
  });
});

describe("the memory of the cache", () => {
  it("holds no more answers than it may, and lets go of those that were not asked for", async () => {
    const all = cluster({ cache: { entriesMax: 3 } });
    const engine = all.engine();
    const [first, second, third, fourth] = keys(4) as [Arrival, Arrival, Arrival, Arrival];
    for (const request of [first, second, third]) await complete(engine, request);
    expect(await askedFor(all, engine, [first])).toBe(0);
    await complete(engine, fourth);
    expect(await askedFor(all, engine, [first, third, fourth])).toBe(0);
    expect(await askedFor(all, engine, [second])).toBe(1);
  });

  it("holds no more bytes than it may, and no answer that would take most of them", async () => {
    const bytesMax = 1024 * 1024;
    const all = cluster({ cache: { bytesMax } });
    const engine = all.engine();
    const large = "x".repeat(bytesMax / 64 - 1024);
    for (const request of keys(200)) await complete(engine, request, large);
    const known = 200 - (await askedFor(all, engine, keys(200).toReversed()));
    // Those that had to be asked for have pushed out others meanwhile, so this is what fitted at the least.
    expect(known).toBeGreaterThan(50);
    expect(known * large.length).toBeLessThanOrEqual(bytesMax);

    const huge = arrival({}, { key: "huge" });
    await complete(engine, huge, "x".repeat(bytesMax / 64));
    expect(await askedFor(all, engine, [huge, huge])).toBe(2);
  });

  it("does not hold on to the buffer that a driver's body is a part of", async () => {
    const windows = (store: Store): Store => {
      const { reserve } = store;
      return Object.assign(store, {
        reserve: async (...request: Parameters<Store["reserve"]>) => {
          const answer = await reserve.apply(store, request);
          if (answer.kind !== "replay" || answer.response.kind !== "full") return answer;
          const packet = Buffer.concat([Buffer.alloc(65_536), answer.response.body]);
          return { ...answer, response: { ...answer.response, body: packet.subarray(65_536) } };
        },
      });
    };
    const all = cluster({ cache: {}, store: ({ now }) => windows(memoryStore({ clock: now })) });
    await complete(all.engine());
    const engine = all.engine();
    const bufferBytes = (verdict: Verdict) =>
      verdict.kind === "replay" &&
      verdict.response.kind === "full" &&
      verdict.response.body.buffer.byteLength;
    expect(bufferBytes(await engine.arrive(arrival()))).toBeGreaterThan(65_536);
    expect(bufferBytes(await engine.arrive(arrival()))).toBe(4);
  });
});

describe("a cache that cannot be right", () => {
  const tenant = "single";
  const place = useFolder();

  it("is refused where the store cannot push, with what to use instead", async () => {
    const store = sqliteStore(place.path);
    const create = () => createLatchkey({ store, tenant, cache: {} });
    expect(create).toThrow(ConfigError);
    expect(create).toThrow(/the sqlite store.*postgresStore with a Pool.*listen: true/);
    await store.close();
  });

  it.each([
    ["entriesMax", 0],
    ["entriesMax", 1.5],
    ["bytesMax", -1],
    ["bytesMax", Number.NaN],
    ["bytesMax", Number.POSITIVE_INFINITY],
  ])("is refused with %s: %s", (name, value) => {
    const create = () => createLatchkey({ store: memoryStore(), tenant, cache: { [name]: value } });
    expect(create).toThrow(ConfigError);
    expect(create).toThrow(`cache.${name} is ${value}`);
  });
});
