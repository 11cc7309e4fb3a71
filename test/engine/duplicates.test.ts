import { describe, expect, it } from "vitest";
import type { Verdict } from "../../src/engine/verdict.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { answered, arrival, bodyOf, cluster, execution, leaseMs } from "./cluster.ts";

function kinds(verdicts: readonly Verdict[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { kind } of verdicts) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

describe("duplicates in one process", () => {
  it("fifty at once ask the store once, and one executes", async () => {
    const { engine: start, store } = cluster();
    const engine = start();
    const verdicts = await Promise.all(Array.from({ length: 50 }, () => engine.arrive(arrival())));
    expect(kinds(verdicts)).toEqual({ execute: 1, inFlight: 49 });
    expect(store.calls.reserve).toBe(1);
  });

  it("fifty replays at once ask the store once", async () => {
    const { engine: start, store } = cluster();
    await execution(await start().arrive(arrival())).settle(answered(201, "done"));
    const engine = start();
    const before = store.calls.reserve;
    const verdicts = await Promise.all(Array.from({ length: 50 }, () => engine.arrive(arrival())));
    expect(kinds(verdicts)).toEqual({ replay: 50 });
    expect(store.calls.reserve - before).toBe(1);
  });

  it("with another fingerprint they are refused while the first runs, without asking the store", async () => {
    const { engine: start, store } = cluster();
    const engine = start();
    const running = execution(await engine.arrive(arrival()));
    expect(await engine.arrive(arrival({}, { fingerprint: "v1:b" }))).toEqual({ kind: "mismatch" });
    expect(store.calls.reserve).toBe(1);
    await running.settle(answered(201));
  });

  it("with another fingerprint they are judged by the record, not by who came first", async () => {
    const { engine: start } = cluster();
    await execution(await start().arrive(arrival())).settle(answered(201, "done"));
    const engine = start();
    const [wrong, right] = await Promise.all([
      engine.arrive(arrival({}, { fingerprint: "v1:b" })),
      engine.arrive(arrival()),
    ]);
    expect(wrong).toEqual({ kind: "mismatch" });
    expect(bodyOf(right as Verdict)).toBe("done");
    const [first, second] = await Promise.all([
      engine.arrive(arrival()),
      engine.arrive(arrival({}, { fingerprint: "v1:b" })),
    ]);
    expect(bodyOf(first as Verdict)).toBe("done");
    expect(second).toEqual({ kind: "mismatch" });
  });

  it("under wait they get the first one's answer without asking the store", async () => {
    const { engine: start, store, events } = cluster();
    const engine = start();
    const policy = arrival({ onInFlight: "wait" });
    const running = execution(await engine.arrive(policy));
    const waiting = Array.from({ length: 50 }, () => engine.arrive(policy));
    await running.settle(answered(201, "done"));
    expect((await Promise.all(waiting)).map(bodyOf)).toEqual(Array.from({ length: 50 }, () => "done"));
    expect(store.calls.reserve).toBe(1);
    expect(events.filter((event) => event.type === "waited")).toHaveLength(50);
  });

  it("under wait one of them executes when the first one failed", async () => {
    const engine = cluster().engine();
    const policy = arrival({ onInFlight: "wait" });
    const running = execution(await engine.arrive(policy));
    const waiting = [engine.arrive(policy), engine.arrive(policy)];
    await running.settle(answered(503));
    const second = execution(await Promise.race(waiting));
    expect(second.attempt).toBe(2);
    await second.settle(answered(201, "second"));
    expect(kinds(await Promise.all(waiting))).toEqual({ execute: 1, replay: 1 });
  });

  it("under wait they give up in time", async () => {
    const { clock, engine: start } = cluster();
    const engine = start();
    const policy = arrival({ onInFlight: "wait", waitMs: 2000 });
    const running = execution(await engine.arrive(policy));
    const waiting = engine.arrive(policy);
    await clock.advance(2000);
    expect((await waiting).kind).toBe("inFlight");
    await running.settle(answered(201));
  });

  it("under accept they are told where to ask, before a worker executes it, while it does and after it died", async () => {
    const { clock, engine: start } = cluster();
    const engine = start();
    const policy = arrival({ onInFlight: "accept", onCrash: "retry" });
    expect((await engine.arrive(policy)).kind).toBe("accepted");
    expect((await engine.arrive(policy)).kind).toBe("accepted");
    const worker = start();
    execution(await worker.arrive({ ...policy, isClaim: true }));
    expect((await engine.arrive(policy)).kind).toBe("accepted");
    expect((await worker.arrive(policy)).kind).toBe("accepted");
    worker.close();
    await clock.advance(leaseMs + 1);
    expect((await engine.arrive(policy)).kind).toBe("accepted");
    const running = execution(await engine.arrive({ ...policy, isClaim: true }));
    expect(running.attempt).toBe(2);
    await running.settle(answered(201));
    expect((await engine.arrive(policy)).kind).toBe("replay");
  });

  it("nothing is remembered once a request is settled", async () => {
    const { engine: start, store } = cluster();
    const engine = start();
    await execution(await engine.arrive(arrival())).settle(answered(201));
    await engine.arrive(arrival());
    expect(store.calls.reserve).toBe(2);
  });
});

/** A store whose changes in other processes are only seen by asking. */
const withoutPush = (clock: { now(): number }) => {
  const store = memoryStore({ clock: clock.now });
  return {
    name: "memory without push",
    capabilities: { ...store.capabilities, push: false },
    reserve: store.reserve.bind(store),
    settle: store.settle.bind(store),
    renew: store.renew.bind(store),
    advance: store.advance.bind(store),
    read: store.read.bind(store),
    sweep: store.sweep.bind(store),
    reap: store.reap.bind(store),
    claimResumable: store.claimResumable.bind(store),
    claimUnknown: store.claimUnknown.bind(store),
    resolve: store.resolve.bind(store),
    bust: store.bust.bind(store),
    list: store.list.bind(store),
    audit: store.audit.bind(store),
    forgetTenant: store.forgetTenant.bind(store),
    unknownCounts: store.unknownCounts.bind(store),
    notes: store.notes,
    close: store.close.bind(store),
  };
};

describe.each([
  ["by push", undefined],
  ["by polling", withoutPush],
])("waiting for another process %s", (_how, store) => {
  const policy = { onInFlight: "wait", waitMs: 10_000 } as const;
  const open = () => cluster(store === undefined ? {} : { store });

  it("gives the answer when it is there", async () => {
    const { clock, engine: start } = open();
    const [first, second] = [start(), start()];
    const running = execution(await first.arrive(arrival(policy)));
    const waiting = second.arrive(arrival(policy));
    await clock.advance(3000);
    await running.settle(answered(201, "done"));
    await clock.advance(500);
    expect(bodyOf(await waiting)).toBe("done");
  });

  it("becomes the execution when the first one failed", async () => {
    const { clock, engine: start } = open();
    const [first, second] = [start(), start()];
    const running = execution(await first.arrive(arrival(policy)));
    const waiting = second.arrive(arrival(policy));
    await running.settle(answered(500));
    await clock.advance(500);
    expect(execution(await waiting).attempt).toBe(2);
  });

  it("gives up in time, and asks no more than a few times a second", async () => {
    const { clock, engine: start, store: counted, events } = open();
    const [first, second] = [start(), start()];
    await first.arrive(arrival(policy));
    const waiting = second.arrive(arrival(policy));
    await clock.advance(10_000);
    expect((await waiting).kind).toBe("inFlight");
    expect(counted.calls.reserve).toBeLessThan(60);
    const told = events.filter((event) => event.type === "reserved");
    expect(told.map((event) => event.outcome)).toEqual(["created", "in_progress"]);
  });

  it("a duplicate that comes later waits for as long as it was promised, not for as long as the first one", async () => {
    const { clock, engine: start } = open();
    const [first, second] = [start(), start()];
    const running = execution(await first.arrive(arrival(policy)));
    const early = second.arrive(arrival(policy));
    await clock.advance(9_900);
    const late = second.arrive(arrival(policy));
    await clock.advance(2_000);
    expect((await early).kind).toBe("inFlight");
    await running.settle(answered(201, "done"));
    await clock.advance(2_000);
    expect(bodyOf(await late)).toBe("done");
  });

  it("learns of a dead owner in time", async () => {
    const { clock, engine: start } = open();
    const [first, second] = [start(), start()];
    await first.arrive(arrival({ ...policy, onCrash: "retry" }));
    first.close();
    await clock.advance(leaseMs - 2000);
    const waiting = second.arrive(arrival({ ...policy, onCrash: "retry" }));
    await clock.advance(4000);
    expect(execution(await waiting).after).toBe("crash");
  });
});
