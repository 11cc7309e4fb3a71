import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Engine } from "../../../src/engine/engine.ts";
import type { TenantLimits } from "../../../src/engine/limits/options.ts";
import { bodyOf } from "../cluster.ts";
import { completed, deployment, fresh, settled } from "./deployment.ts";

const second = 1000;
const lifted: TenantLimits = { newKeys: { max: Number.POSITIVE_INFINITY, perMs: second } };

/** One process, and what `of` does for its tenants. */
function changing(max: number) {
  const plan: { of: () => TenantLimits | undefined } = { of: () => undefined };
  const shared = deployment({ newKeys: { max, perMs: 60 * second }, of: () => plan.of() });
  const engine = shared.engines[0] as Engine;
  const kind = async (key?: string, policy = {}) =>
    (await settled(shared.clock, fresh(engine, key === undefined ? { policy } : { key, policy }))).kind;
  return { ...shared, plan, engine, kind };
}

describe("a limit that is lifted", () => {
  it("lets in those who wait for it, also where the store is being asked about them", async () => {
    const shared = deployment({
      newKeys: { max: 10, perMs: 60 * second },
      of: () => (isLifted ? lifted : undefined),
    });
    let isLifted = false;
    const engine = shared.engines[0] as Engine;
    await settled(shared.clock, fresh(engine));
    shared.latencyMs = 30;
    await shared.clock.advance(990);
    const waiting = Promise.all(Array.from({ length: 5 }, () => fresh(engine)));
    await shared.clock.advance(10);
    isLifted = true;
    const later = fresh(engine);
    expect((await settled(shared.clock, waiting)).map(({ kind }) => kind)).toEqual(Array(5).fill("execute"));
    expect((await settled(shared.clock, later)).kind).toBe("execute");
  });
});

describe("an `of` that throws", () => {
  const broken = () => {
    throw new Error("the table of customers is away");
  };

  beforeEach(() => void vi.spyOn(process, "emitWarning").mockImplementation(() => {}));
  afterEach(() => void vi.restoreAllMocks());

  it("leaves a tenant under the limits that are known, and none of its keys waiting", async () => {
    const { clock, plan, kind } = changing(3);
    expect(await kind("a")).toBe("execute");
    await clock.advance(2 * second);
    plan.of = broken;
    expect(await kind("b")).toBe("execute");
    expect(await kind("b")).toBe("inFlight");
    expect(await kind("c")).toBe("execute");
    expect(await kind("d")).toBe("limited");
    expect(process.emitWarning).toHaveBeenCalledWith(new Error("the table of customers is away"));
  });

  it("does not limit a tenant that has no limits", async () => {
    const { clock, plan, kind } = changing(1);
    plan.of = () => lifted;
    expect(await kind()).toBe("execute");
    await clock.advance(2 * second);
    plan.of = broken;
    for (let count = 0; count < 3; count += 1) expect(await kind()).toBe("execute");
  });

  it("puts a tenant of which nothing is known under the limits of everybody", async () => {
    const { plan, kind } = changing(1);
    plan.of = broken;
    expect(await kind()).toBe("execute");
    expect(await kind()).toBe("limited");
  });
});

describe("limits that fail", () => {
  afterEach(() => void vi.restoreAllMocks());

  it.each([
    [
      "at once",
      () => {
        throw new Error("a bug");
      },
    ],
    ["later", () => Promise.reject(new Error("a bug"))],
  ])("%s execute nothing, and leave nobody waiting", async (_when, fail) => {
    const { clock, engine, events, kind } = changing(3);
    const limits = engine.limits as NonNullable<Engine["limits"]>;
    const policy = { onStoreDown: "open", onInFlight: "wait" } as const;
    const taking = vi.spyOn(limits, "takeKey").mockImplementation(fail);
    const twice = Promise.all([fresh(engine, { key: "a", policy }), fresh(engine, { key: "a", policy })]);
    expect((await settled(clock, twice)).map((verdict) => verdict.kind)).toEqual(["storeDown", "storeDown"]);
    expect(await kind("b", { onInFlight: "accept" })).toBe("storeDown");
    expect(events).toContainEqual({ type: "store_error", verb: "notes", error: new Error("a bug") });
    taking.mockRestore();
    expect(await kind("a")).toBe("execute");
  });

  it("when the store has answered do not take the answer away", async () => {
    const { clock, engine } = changing(3);
    const limits = engine.limits as NonNullable<Engine["limits"]>;
    await settled(clock, completed(engine, "mine", "acme", "paid"));
    vi.spyOn(limits, "giveKeyBack").mockImplementation(() => {
      throw new Error("a bug");
    });
    expect(bodyOf(await settled(clock, fresh(engine, { key: "mine" })))).toBe("paid");
  });
});
