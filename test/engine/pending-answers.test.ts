import { AsyncLocalStorage } from "node:async_hooks";
import { afterEach, describe, expect, it, vi } from "vitest";
import { StoreBusyError } from "../../src/core/errors.ts";
import type { Store } from "../../src/core/store.ts";
import { Engine } from "../../src/engine/engine.ts";
import { createLatchkey } from "../../src/index.ts";
import { type ManualClock, manualClock } from "../../src/testing/index.ts";
import { answered, arrival, bodyOf, execution, leaseMs, storeTimeoutMs } from "./cluster.ts";
import { type Question, tellingStore } from "./telling-store.ts";

const engines: Engine[] = [];
afterEach(() => {
  for (const engine of engines.splice(0)) engine.close();
});

function setUp(options: { readonly leaseMs?: number } = {}) {
  const clock = manualClock();
  const { store, questions, refuse } = tellingStore(clock.now);
  return { clock, store, questions, refuse, engine: engineOn(store, clock, options) };
}

function engineOn(store: Store, clock: ManualClock, options: { readonly leaseMs?: number } = {}): Engine {
  const engine = new Engine({ store, runtime: clock, leaseMs, storeTimeoutMs, ...options });
  engines.push(engine);
  return engine;
}

/** The question that was asked last, and has not been looked at. */
function next(questions: Question[], verb: Question["verb"]): Question {
  const question = questions.shift();
  if (question?.verb !== verb) throw new Error(`expected to be asked to ${verb}, was: ${question?.verb}`);
  return question;
}

/** A reservation that nobody waits for any more is given back by reading it and settling it: two questions. */
async function giveBack(clock: ManualClock, questions: Question[]): Promise<void> {
  await clock.advance(0);
  next(questions, "settle").answer();
  await clock.advance(0);
}

describe("a store that tells its answers", () => {
  it("is listened to by the request and by its outcome, and what it told is replayed", async () => {
    const { engine, questions } = setUp();
    const first = engine.arrive(arrival());
    next(questions, "reserve").answer();
    const settled = execution(await first).settle(answered(201, "done"));
    next(questions, "settle").answer();
    expect(await settled).toMatchObject({ kind: "stored" });
    const second = engine.arrive(arrival());
    next(questions, "reserve").answer();
    expect(bodyOf(await second)).toBe("done");
  });

  it("is asked once for all who join a request before its answer is there", async () => {
    const { engine, questions } = setUp();
    const all = [engine.arrive(arrival()), engine.arrive(arrival()), engine.arrive(arrival())];
    next(questions, "reserve").answer();
    expect((await Promise.all(all)).map(({ kind }) => kind)).toEqual(["execute", "inFlight", "inFlight"]);
    expect(questions).toEqual([]);
  });

  it("counts as down when it takes too long, and what it grants later is given back before any heartbeat", async () => {
    const { clock, engine, questions } = setUp();
    const verdict = engine.arrive(arrival());
    const late = next(questions, "reserve");
    await clock.advance(storeTimeoutMs);
    expect(await verdict).toEqual({ kind: "storeDown" });
    late.answer();
    await giveBack(clock, questions);
    const again = engine.arrive(arrival());
    next(questions, "reserve").answer();
    expect(execution(await again).after).toBe("failed_retryable");
  });

  it("does not have an execution begun by an answer that comes after its time", async () => {
    const { clock, store, engine, questions } = setUp();
    const verdict = engine.arrive(arrival());
    const late = next(questions, "reserve");
    await clock.advance(storeTimeoutMs);
    late.answer();
    late.answer();
    late.fail(new Error("and the connection is lost"));
    await giveBack(clock, questions);
    expect(await verdict).toEqual({ kind: "storeDown" });
    const { record } = await store.read({ scope: "tenant", key: "key" });
    expect(record).toMatchObject({ state: "failed_retryable", fence: 1 });
  });

  it("is believed the first time: what it says afterwards takes nothing from whoever executes", async () => {
    const { clock, engine, questions } = setUp();
    const verdict = engine.arrive(arrival());
    const question = next(questions, "reserve");
    question.answer();
    const running = execution(await verdict);
    question.fail(new Error("and the connection is lost"));
    await clock.advance(leaseMs);
    // A reservation that counted as failed would be given back under the feet of its handler.
    expect(questions).toEqual([]);
    expect(running.signal.aborted).toBe(false);
  });

  it("grants one execution, however often it says so", async () => {
    const { clock, engine, questions, store } = setUp();
    const verdict = engine.arrive(arrival());
    const question = next(questions, "reserve");
    question.answer();
    question.answer();
    const settled = execution(await verdict).settle(answered(201));
    next(questions, "settle").answer();
    await settled;
    const renew = vi.spyOn(store, "renew");
    await clock.advance(10 * leaseMs);
    // A second one would hold the lease for ever, and nobody would settle it.
    expect(renew).not.toHaveBeenCalled();
  });

  it("grants nothing with an answer that took as long as the lease, which is given back at once", async () => {
    const { clock, engine, questions } = setUp({ leaseMs: 1_000 });
    const verdict = engine.arrive(arrival());
    const slow = next(questions, "reserve");
    slow.carryOut();
    await clock.advance(1_000);
    slow.answer();
    expect(await verdict).toEqual({ kind: "storeDown" });
    await giveBack(clock, questions);
    const again = engine.arrive(arrival());
    next(questions, "reserve").answer();
    expect(execution(await again).after).toBe("failed_retryable");
  });

  it("has executed nothing when it fails, and is asked again by the next request", async () => {
    const { engine, questions } = setUp();
    const failed = engine.arrive(arrival());
    next(questions, "reserve").fail(new Error("the connection is lost"));
    expect(await failed).toEqual({ kind: "storeDown" });
    const again = engine.arrive(arrival());
    next(questions, "reserve").answer();
    expect((await again).kind).toBe("execute");
  });

  it("has executed nothing when it throws, and is not asked about what it had no room for", async () => {
    const { clock, engine, questions, store, refuse } = setUp();
    const read = vi.spyOn(store, "read");
    refuse(new StoreBusyError("10,000 calls are waiting already"));
    expect(await engine.arrive(arrival())).toEqual({ kind: "storeDown" });
    refuse(undefined);
    await clock.advance(2 * leaseMs);
    expect(read).not.toHaveBeenCalled();
    const again = engine.arrive(arrival());
    next(questions, "reserve").answer();
    expect((await again).kind).toBe("execute");
  });

  it.each<[string, (setting: ReturnType<typeof setUp>) => Promise<void>]>([
    ["that fails", async ({ questions }) => next(questions, "settle").fail(new Error("the disk is full"))],
    [
      "that takes too long",
      async ({ clock, questions }) => {
        next(questions, "settle");
        await clock.advance(storeTimeoutMs);
      },
    ],
    ["that throws", async ({ refuse }) => refuse(undefined)],
  ])("an outcome %s is told again until the store confirms it", async (how, trouble) => {
    const setting = setUp();
    const { clock, engine, questions, refuse } = setting;
    const first = engine.arrive(arrival());
    next(questions, "reserve").answer();
    const running = execution(await first);
    if (how === "that throws") refuse(new Error("the store is closed"));
    const settled = running.settle(answered(201, "kept"));
    await trouble(setting);
    expect(await settled).toEqual({ kind: "storeDown" });
    await clock.advance(leaseMs / 3);
    expect(questions.length).toBeGreaterThan(0);
    for (const question of questions.splice(0)) question.answer();
    await clock.advance(0);
    const again = engine.arrive(arrival());
    next(questions, "reserve").answer();
    expect(bodyOf(await again)).toBe("kept");
  });
});

describe("whose asynchronous context it is", () => {
  const caller = new AsyncLocalStorage<string>();
  const elsewhere = "whoever the store works for just now";

  it("is asked for promises as soon as somebody listens, and no longer than that", async () => {
    const { engine, questions } = setUp();
    const forms = async (key: string) => {
      const verdict = engine.arrive(arrival({}, { key }));
      const reserve = next(questions, "reserve");
      reserve.answer();
      const settled = execution(await verdict).settle(answered(201));
      const settle = next(questions, "settle");
      settle.answer();
      await settled;
      return [reserve.form, settle.form];
    };
    expect(await forms("unheard")).toEqual(["pending", "pending"]);
    const stop = engine.events.subscribe(() => {});
    expect(await forms("heard")).toEqual(["promise", "promise"]);
    stop();
    expect(await forms("unheard again")).toEqual(["pending", "pending"]);
  });

  it("is asked for promises where each tenant's limits are the application's to say", async () => {
    const { clock, store, questions } = setUp();
    const limits = { of: () => ({ newKeys: { max: 10, perMs: 1000 } }) };
    const engine = new Engine({ store, runtime: clock, leaseMs, storeTimeoutMs, limits });
    engines.push(engine);
    void engine.arrive(arrival());
    await clock.advance(0);
    expect(next(questions, "reserve").form).toBe("promise");
  });

  it("is the request's own for whoever listens to its signal, when the store says that it is lost", async () => {
    const { engine, store, questions } = setUp();
    const seen: unknown[] = [];
    const verdicts = ["a", "b"].map((key) => caller.run(key, () => engine.arrive(arrival({}, { key }))));
    for (const question of questions.splice(0)) question.answer();
    const running = (await Promise.all(verdicts)).map(execution);
    const settled = running.map((each) =>
      caller.run(each.lease.key, () => {
        each.signal.addEventListener("abort", () => seen.push(caller.getStore()));
        return each.settle(answered(201));
      }),
    );
    const outcomes = questions.splice(0);
    for (const { lease } of running) {
      const given = store.settle(lease, { kind: "release", reason: "meanwhile", retentionMs: 1000 });
      next(questions, "settle").answer();
      await given;
    }
    caller.run(elsewhere, () => {
      for (const outcome of outcomes) outcome.answer();
    });
    expect(await Promise.all(settled)).toEqual([{ kind: "lost" }, { kind: "lost" }]);
    expect(seen).toEqual(["a", "b"]);
  });

  it("is the request's own for whoever listens to events", async () => {
    const { engine, questions } = setUp();
    const seen: string[] = [];
    engine.events.subscribe((event) => {
      if ("key" in event) seen.push(`${event.type} ${event.key}: ${caller.getStore()}`);
    });
    const verdicts = ["a", "b"].map((key) => caller.run(key, () => engine.arrive(arrival({}, { key }))));
    caller.run(elsewhere, () => {
      for (const question of questions.splice(0)) question.answer();
    });
    const running = (await Promise.all(verdicts)).map(execution);
    const settled = running.map((each) => caller.run(each.lease.key, () => each.settle(answered(201))));
    caller.run(elsewhere, () => {
      for (const question of questions.splice(0)) question.answer();
    });
    await Promise.all(settled);
    expect(seen).toEqual(["reserved a: a", "reserved b: b", "settled a: a", "settled b: b"]);
  });

  it("is the caller's own in each of many handlers and behind each await, although one place tells all answers", async () => {
    const { store, questions } = tellingStore(Date.now);
    const latchkey = createLatchkey({ store, tenant: "single" });
    const tellAll = () =>
      caller.run(elsewhere, () => {
        for (const question of questions.splice(0)) question.answer();
      });
    const names = Array.from({ length: 50 }, (_, index) => `caller ${index}`);
    const runs = names.map((name) =>
      caller.run(name, async () => {
        const inside = await latchkey.run({ tenant: "acme", key: name }, async () => {
          const before = caller.getStore();
          await null;
          return [before, caller.getStore()];
        });
        return [...inside, caller.getStore()];
      }),
    );
    expect(questions.map(({ verb }) => verb)).toEqual(names.map(() => "reserve"));
    tellAll();
    await new Promise((resolve) => setImmediate(resolve));
    expect(questions.map(({ verb }) => verb)).toEqual(names.map(() => "settle"));
    tellAll();
    expect(await Promise.all(runs)).toEqual(names.map((name) => [name, name, name]));
    await latchkey.close({ drainMs: 0 });
  });
});
