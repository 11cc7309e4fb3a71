import { describe, expect, it } from "vitest";
import type { BustListener, Store } from "../../src/core/store.ts";
import type { Arrival } from "../../src/engine/verdict.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { asked, askedFor, complete, keys, slowStore } from "./caching.ts";
import { answered, arrival, bodyOf, cluster, execution } from "./cluster.ts";

const said = { by: "ada", reason: "a wrong price" };

/** Engines on a store that tells of no bust unless the test does, and whose connection for that can be cut. */
function cuttable() {
  const listeners: BustListener[] = [];
  const slow = slowStore();
  const all = cluster({
    cache: {},
    store: ({ now }) => {
      const memory = memoryStore({ clock: now });
      const onBusted: Store["onBusted"] = (listener) => {
        listeners.push(listener);
        return ({ scope, key }) => `${scope} ${key}`;
      };
      return slow.over(Object.assign(memory, { onBusted }));
    },
  });
  return { all, slow, listeners };
}

describe("a busted key", () => {
  it("is executed again by the process that busted it, and by every other", async () => {
    const all = cluster({ cache: {} });
    const engines = [all.engine(), all.engine(), all.engine()] as const;
    await complete(engines[0]);
    for (const engine of engines) await engine.arrive(arrival());
    for (const engine of engines) {
      const before = await engine.arrive(arrival());
      expect(before.kind).toBe("replay");
      expect(await engines[1].bust(arrival(), said)).toEqual({ kind: "busted" });
      const again = execution(await engine.arrive(arrival()));
      expect(again.after).toBe("expired");
      await again.settle(answered(201, `by ${engines.indexOf(engine)}`));
      for (const other of engines) {
        expect(bodyOf(await other.arrive(arrival()))).toBe(`by ${engines.indexOf(engine)}`);
      }
    }
  });

  it("is executed anew although its old answer is still on its way from the store", async () => {
    const slow = slowStore();
    const all = cluster({ store: ({ now }) => slow.over(memoryStore({ clock: now })) });
    const engine = all.engine();
    const old = execution(await engine.arrive(arrival()));
    slow.hold();
    const settled = old.settle(answered(201, "old"));
    await Promise.resolve();
    expect(await engine.bust(arrival(), said)).toEqual({ kind: "busted" });
    const next = engine.arrive(arrival());
    slow.release();
    expect(execution(await next).after).toBe("expired");
    await settled;
  });

  it("takes no other answer with it", async () => {
    const all = cluster({ cache: {} });
    const engine = all.engine();
    const [busted, ...others] = keys(5);
    for (const request of keys(5)) await complete(engine, request);
    await engine.bust(busted as Arrival, said);
    expect(await askedFor(all, engine, others)).toBe(0);
  });

  it.each(["reserve", "settle"] as const)(
    "is not kept by an answer to %s that was on its way meanwhile",
    async (verb) => {
      const slow = slowStore();
      const all = cluster({ cache: {}, store: ({ now }) => slow.over(memoryStore({ clock: now })) });
      const [engine, elsewhere] = [all.engine(), all.engine()];
      let late: Promise<unknown>;
      if (verb === "reserve") {
        await complete(elsewhere);
        slow.hold();
        late = Promise.resolve(engine.arrive(arrival())).then(bodyOf);
      } else {
        const running = execution(await engine.arrive(arrival()));
        slow.hold();
        late = Promise.resolve(running.settle(answered(201, "done"))).then(({ kind }) => kind);
      }
      await all.clock.advance(1);
      expect(await elsewhere.bust(arrival(), said)).toEqual({ kind: "busted" });
      slow.release();
      expect(await late).toBe(verb === "reserve" ? "done" : "stored");
      expect(execution(await engine.arrive(arrival())).attempt).toBe(2);
    },
  );

  it("is not replayed to those who come after the bust, by joining a question from before it", async () => {
    for (const cache of [{}, undefined]) {
      const slow = slowStore();
      const all = cluster({
        ...(cache === undefined ? {} : { cache }),
        store: ({ now }) => slow.over(memoryStore({ clock: now })),
      });
      const engine = all.engine();
      await complete(all.engine());
      slow.hold();
      const early = engine.arrive(arrival());
      await all.clock.advance(1);
      await engine.bust(arrival(), said);
      const late = engine.arrive(arrival());
      await all.clock.advance(1);
      slow.release();
      expect(bodyOf(await early)).toBe("done");
      expect(execution(await late).attempt).toBe(2);
    }
  });

  it("is forgotten at once by the process that busted it, before any push, and even if the answer to the bust was lost", async () => {
    for (const fault of [{ kind: "none" }, { kind: "failAfter" }] as const) {
      const { all, listeners } = cuttable();
      const engine = all.engine();
      for (const listener of listeners) listener.listening();
      await complete(engine);
      expect(await askedFor(all, engine, [arrival()])).toBe(0);
      all.faults.push(fault);
      await engine.bust(arrival(), said).catch(() => {});
      expect(execution(await engine.arrive(arrival())).attempt).toBe(2);
    }
  });

  it("is not kept by an answer that was on its way while this process busted it, before any push", async () => {
    const { all, slow, listeners } = cuttable();
    const engine = all.engine();
    for (const listener of listeners) listener.listening();
    await complete(all.engine());
    slow.hold();
    const late = engine.arrive(arrival());
    await all.clock.advance(1);
    await engine.bust(arrival(), said);
    slow.release();
    expect(bodyOf(await late)).toBe("done");
    expect(execution(await engine.arrive(arrival())).attempt).toBe(2);
  });

  it("that is being executed here stays joinable", async () => {
    const all = cluster({ cache: {} });
    const engine = all.engine();
    const running = execution(await engine.arrive(arrival()));
    expect(await engine.bust(arrival(), said)).toEqual({ kind: "not-settled", state: "in_progress" });
    expect(await asked(all, async () => expect((await engine.arrive(arrival())).kind).toBe("inFlight"))).toBe(
      0,
    );
    await running.settle(answered(201));
  });
});

describe("while busts cannot be heard", () => {
  it("nothing is kept, from the beginning", async () => {
    const { all, listeners } = cuttable();
    const engine = all.engine();
    await complete(engine);
    expect(await askedFor(all, engine, [arrival(), arrival()])).toBe(2);
    for (const listener of listeners) listener.listening();
    expect(await askedFor(all, engine, [arrival(), arrival()])).toBe(1);
  });

  it("everything is forgotten, and kept again when they are", async () => {
    const { all, listeners } = cuttable();
    const engine = all.engine();
    for (const listener of listeners) listener.listening();
    for (const request of keys(3)) await complete(engine, request);
    expect(await askedFor(all, engine, keys(3))).toBe(0);
    for (const listener of listeners) listener.interrupted();
    expect(await askedFor(all, engine, [...keys(3), ...keys(3)])).toBe(6);
    for (const listener of listeners) listener.listening();
    expect(await askedFor(all, engine, [...keys(3), ...keys(3)])).toBe(3);
  });

  it("what was asked for before they were heard again is not kept", async () => {
    const { all, slow, listeners } = cuttable();
    const engine = all.engine();
    for (const listener of listeners) listener.listening();
    await complete(engine);
    for (const listener of listeners) listener.interrupted();
    slow.hold();
    const early = engine.arrive(arrival());
    await all.clock.advance(1);
    for (const listener of listeners) listener.listening();
    slow.release();
    expect((await early).kind).toBe("replay");
    expect(await askedFor(all, engine, [arrival(), arrival()])).toBe(1);
  });
});
