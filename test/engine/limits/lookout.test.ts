import { describe, expect, it } from "vitest";
import type { Engine } from "../../../src/engine/engine.ts";
import { bodyOf } from "../cluster.ts";
import { completed, type Deployment, deployment, fresh, settled } from "./deployment.ts";

const limits = { newKeys: { max: 2, perMs: 60_000 } };

/** A tenant that has used up its limit, with one request that is done. */
async function usedUp(): Promise<{ readonly shared: Deployment; readonly engine: Engine }> {
  const shared = deployment(limits, 1, { tellsOfMany: true });
  const [engine] = shared.engines as [Engine];
  await settled(shared.clock, completed(engine, "mine", "acme", "paid"));
  await settled(shared.clock, fresh(engine));
  expect((await settled(shared.clock, fresh(engine))).kind).toBe("limited");
  return { shared, engine };
}

describe("a flood of keys over a limit, on a store that can tell of many at once", () => {
  it("is refused with one question for all that came together, and reads nothing", async () => {
    const { shared, engine } = await usedUp();
    const { exist, read, reserve } = shared.store.calls;
    const flood = Array.from({ length: 500 }, () => fresh(engine));
    const verdicts = await settled(shared.clock, Promise.all(flood));
    expect(new Set(verdicts.map(({ kind }) => kind))).toEqual(new Set(["limited"]));
    expect(shared.store.calls).toMatchObject({ exist: exist + 1, read, reserve });
    expect(shared.events.filter(({ type }) => type === "limited")).toHaveLength(501);
  });

  it("hides no retry: it gets its answer, and so does one that comes while the store is being asked", async () => {
    const { shared, engine } = await usedUp();
    shared.latencyMs = 5;
    const early = [fresh(engine), fresh(engine, { key: "mine" }), fresh(engine)];
    await shared.clock.advance(12);
    const late = [fresh(engine), fresh(engine, { key: "mine" })];
    const verdicts = await settled(shared.clock, Promise.all([...early, ...late]));
    expect(verdicts.map(({ kind }) => kind)).toEqual(["limited", "replay", "limited", "limited", "replay"]);
    expect(verdicts.filter(({ kind }) => kind === "replay").map(bodyOf)).toEqual(["paid", "paid"]);
  });

  it("is not let in because the store does not say: then each is read, as without it", async () => {
    const { shared, engine } = await usedUp();
    shared.faults.exist = { kind: "failBefore" };
    const { read } = shared.store.calls;
    const verdicts = await settled(
      shared.clock,
      Promise.all([fresh(engine), fresh(engine, { key: "mine" })]),
    );
    expect(verdicts.map(({ kind }) => kind)).toEqual(["limited", "replay"]);
    expect(shared.store.calls.read).toBe(read + 2);
    expect(shared.events).toContainEqual(expect.objectContaining({ type: "store_error", verb: "read" }));
  });
});
