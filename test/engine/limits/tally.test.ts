import { describe, expect, it } from "vitest";
import type { NoteAnswer, NoteWrite } from "../../../src/core/notes.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { limitsNoteName } from "../../../src/engine/limits/tally.ts";
import { response } from "../cluster.ts";
import { type Deployment, deployment, fresh, lookUp, settled, takenIn } from "./deployment.ts";

const second = 1000;

function only({ engines }: Deployment): Engine {
  return engines[0] as Engine;
}

function names(count: number): readonly string[] {
  return Array.from({ length: count }, (_, index) => `tenant-${index}`);
}

function visit(engine: Engine, tenants: readonly string[]): void {
  for (const tenant of tenants) void lookUp(engine, { tenant });
}

/** How many of them all processes know something of. */
async function toldOf({ store }: Deployment, tenants: readonly string[], what = /./): Promise<number> {
  const { notes } = await store.notes.read(tenants.map(limitsNoteName));
  return notes.filter((note) => what.test(note?.value ?? "")).length;
}

/** Changes what the store answers about one write. */
function answering(
  { store, clock }: Deployment,
  change: (write: NoteWrite, answer: NoteAnswer) => NoteAnswer,
): void {
  const write = store.notes.write.bind(store.notes);
  Object.assign(store.notes, {
    async write(writes: readonly NoteWrite[]) {
      await new Promise<void>((resolve) => void clock.setTimer(resolve, 5));
      const { answers, now } = await write(writes);
      return { now, answers: writes.map((one, index) => change(one, answers[index] as NoteAnswer)) };
    },
  });
}

describe("what is told of tenants", () => {
  const limits = { lookUps: { max: 1000, perMs: 60 * second }, storedBytes: 1e9 };

  it("is told of all of them in time, however many there are", async () => {
    const shared = deployment(limits);
    const tenants = names(450);
    visit(only(shared), tenants);
    await shared.clock.advance(260);
    expect(await toldOf(shared, tenants)).toBe(450);
  });

  it("is told of all of them before a process ends, also of those who come while it tells", async () => {
    const shared = deployment(limits);
    shared.latencyMs = 5;
    const tenants = names(250);
    visit(only(shared), tenants.slice(0, 200));
    const flushed = only(shared).limits?.flush();
    await shared.clock.advance(2);
    visit(only(shared), tenants);
    await settled(shared.clock, flushed ?? Promise.reject());
    shared.latencyMs = 0;
    expect(await toldOf(shared, tenants)).toBe(250);
  });

  it("is forgotten with them when there are more than 10,000, also after more came at once", async () => {
    const shared = deployment(limits);
    const engine = only(shared);
    const tenants = names(11_000);
    visit(engine, tenants.slice(0, 10_500));
    await shared.clock.advance(260);
    visit(engine, tenants.slice(10_500));
    // Counts for those only who are remembered.
    for (const tenant of tenants) engine.limits?.chargeResponse(tenant, response(200, "answer"), 60 * second);
    await settled(shared.clock, engine.limits?.flush() ?? Promise.reject());
    expect(await toldOf(shared, tenants, /bytes:\w/)).toBe(10_000);
  }, 30_000);
});

describe("a note that others keep changing", () => {
  it("holds up its tenant only", async () => {
    const shared = deployment({ lookUps: { max: 10, perMs: 60 * second } });
    let changes = 0;
    answering(shared, ({ name }, answer) => {
      if (name !== limitsNoteName("contended")) return answer;
      changes += 1;
      return { kind: "conflict", note: { value: "", version: `other-${changes}` } };
    });
    const contended = lookUp(only(shared), { tenant: "contended" });
    await shared.clock.advance(30);
    const askedAt = shared.clock.now();
    expect(await settled(shared.clock, lookUp(only(shared), { tenant: "calm" }))).toBeUndefined();
    expect(shared.clock.now() - askedAt).toBeLessThan(100);
    expect(await settled(shared.clock, contended)).toBeUndefined();
    expect(changes).toBeGreaterThan(5);
  });
});

describe("a write that is answered with itself, because its first answer was lost", () => {
  it("counts once", async () => {
    const shared = deployment({ activeKeys: 1000 });
    let lies = 1;
    answering(shared, ({ note }, answer) => {
      if (answer.kind !== "written" || lies === 0) return answer;
      lies -= 1;
      return { kind: "conflict", note };
    });
    for (let count = 0; count < 5; count += 1) await settled(shared.clock, fresh(only(shared)));
    await shared.clock.advance(second);
    expect(lies).toBe(0);
    expect(await takenIn(shared, "active")).toBe(5);
  });
});

describe("a store that does not answer about limits, and is well otherwise", () => {
  it("is waited for once: nobody else waits until it has answered again, and then it is told everything", async () => {
    const shared = deployment({ activeKeys: 1000 });
    const { clock, noteFaults } = shared;
    for (let count = 0; count < 50; count += 1) noteFaults.push({ kind: "delay", ms: 3600 * second });
    const startedAt = clock.now();
    const waitedMs: number[] = [];
    const arrive = async () => {
      const arrivedAt = clock.now();
      expect((await fresh(only(shared))).kind).toBe("execute");
      if (arrivedAt - startedAt > 1_300) waitedMs.push(clock.now() - arrivedAt);
    };
    const arriving: Promise<void>[] = [];
    for (let count = 0; count < 200; count += 1) {
      arriving.push(arrive());
      await clock.advance(40);
    }
    await Promise.all(arriving);
    expect(Math.max(...waitedMs)).toBe(0);
    expect(shared.noteCalls()).toBeGreaterThan(3);
    expect(shared.noteCalls()).toBeLessThan(9);
    noteFaults.length = 0;
    for (let count = 0; count < 50; count += 1) {
      await settled(clock, fresh(only(shared)));
      await clock.advance(100);
    }
    await clock.advance(300);
    expect(await takenIn(shared, "active")).toBe(250);
  });
});
