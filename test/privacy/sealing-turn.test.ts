import { describe, expect, it, vi } from "vitest";
import { asked, offerAtOnce } from "../../src/core/at-once.ts";
import { isSealed, sealedMark } from "../../src/core/response.ts";
import type { Lease, Reservation, Settlement, Store } from "../../src/core/store.ts";
import { ForeseenCompletion } from "../../src/privacy/foreseen.ts";
import type { SealedStore } from "../../src/privacy/sealed-store.ts";
import { TurnEnd } from "../../src/privacy/turn-end.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { request } from "../support/reserve-request.ts";
import { ring, sealed, service } from "./support.ts";

const completion = (body: string): Settlement => ({
  kind: "complete",
  response: { kind: "full", status: 201, headers: [], body: Buffer.from(body) },
  retentionMs: 60_000,
});

/** One whose answers have to be waited for, unless they need not be, and what it was asked to settle. */
function distant({ isAtOnce = false } = {}) {
  const store = memoryStore();
  const settled: { readonly key: string; readonly isSealed: boolean }[] = [];
  const { reserve, settle } = store;
  Object.assign(store, {
    reserve: (asking) => reserve.call(store, asking),
    settle: (lease, settlement) => {
      if (settlement.kind !== "complete") throw new Error("nothing else is settled here");
      const { response } = settlement;
      settled.push({ key: lease.key, isSealed: response.kind === "full" && isSealed(response.headers) });
      return settle.call(store, lease, settlement);
    },
  } satisfies Partial<Store>);
  if (isAtOnce) offerAtOnce(store.settle, (lease, settlement) => store.settle(lease, settlement));
  return { store, settled };
}

async function leaseOn(store: Store, key: string): Promise<Lease> {
  const reservation: Reservation = await store.reserve(request({ key }));
  if (reservation.kind !== "execute") throw new Error(`it was answered ${reservation.kind}`);
  return reservation.lease;
}

describe("answers that are sealed", () => {
  it("are opened at once where the store's answers are there at once", async () => {
    const store = sealed(memoryStore(), ring({ perTenant: false }));
    const reservation = asked(store, store.reserve, request({ key: "k" }));
    if (reservation instanceof Promise || reservation.kind !== "execute")
      throw new Error("it was waited for");
    await store.settle(reservation.lease, completion("done"));
    const replay = asked(store, store.reserve, request({ key: "k", owner: "another" }));
    expect(replay).toMatchObject({ kind: "replay", response: { status: 201 } });
  });

  it("go to the store together at the end of the turn in which they came, in their order, also to one in memory", async () => {
    const { store, settled } = distant({ isAtOnce: true });
    const sealing = sealed(store, ring({ perTenant: false }));
    const leases = await Promise.all(["a", "b"].map((key) => leaseOn(sealing, key)));
    const answers = leases.map((lease) => asked(sealing, sealing.settle, lease, completion("done")));
    await Promise.resolve();
    expect(settled).toEqual([]);
    await new Promise(setImmediate);
    expect(settled.map(({ key }) => key)).toEqual(["a", "b"]);
    for (const answer of await Promise.all(answers)) expect(answer).toMatchObject({ kind: "settled" });
  });

  it("go to the store together at the end of the turn in which they came, in their order", async () => {
    const { store, settled } = distant();
    const sealing = sealed(store, ring({ perTenant: false }));
    const leases = await Promise.all(["a", "b", "c"].map((key) => leaseOn(sealing, key)));
    const answers = leases.map((lease) => sealing.settle(lease, completion("done")));
    await Promise.resolve();
    expect(settled).toEqual([]);
    await new Promise(setImmediate);
    expect(settled).toEqual(["a", "b", "c"].map((key) => ({ key, isSealed: true })));
    for (const answer of await Promise.all(answers)) expect(answer).toMatchObject({ kind: "settled" });
  });
});

describe("answers that are known to be settled at the end of the turn", () => {
  it("are all sealed when the first of them is, each for its own record, and settled without waiting", async () => {
    const inner = memoryStore();
    const sealing = sealed(inner, ring({ perTenant: false }));
    const leases = await Promise.all(["a", "b", "c"].map((key) => leaseOn(sealing, key)));
    const foreseen = leases.map((lease) => sealing.foresee(lease, completion(`done ${lease.key}`)));
    const [, second] = foreseen as ForeseenCompletion[];
    expect(second?.sealed).toBeUndefined();
    leases.forEach((lease, index) => {
      const answer = asked(sealing, sealing.settle, lease, foreseen[index] as Settlement);
      expect(answer).toMatchObject({ kind: "settled" });
      expect(second?.sealed).toBeDefined();
    });
    for (const key of ["a", "b", "c"]) {
      const { record } = await inner.read({ scope: leases[0]?.scope ?? "", key });
      expect(record).toMatchObject({ state: "completed", response: { headers: [[sealedMark, "1"]] } });
      const replay = await sealing.reserve(request({ key, owner: "another" }));
      expect(replay).toMatchObject({ kind: "replay", response: { body: Buffer.from(`done ${key}`) } });
    }
  });

  it("fail alone", async () => {
    const sealing = sealed(memoryStore(), ring({ perTenant: false }));
    const leases = await Promise.all(["a", "b"].map((key) => leaseOn(sealing, key)));
    const [good, bad] = leases as [Lease, Lease];
    const broken = { kind: "complete", response: { kind: "full", status: 201, headers: null } } as unknown;
    const foreseen = [sealing.foresee(bad, broken as Settlement), sealing.foresee(good, completion("done"))];
    expect(asked(sealing, sealing.settle, good, foreseen[1] as Settlement)).toMatchObject({
      kind: "settled",
    });
    expect(() => asked(sealing, sealing.settle, bad, foreseen[0] as Settlement)).toThrow(TypeError);
  });

  it("are what they were where the key has to be waited for, and where nothing is sealed", async () => {
    const sealing = sealed(memoryStore(), ring());
    const lease = { scope: "nobody", key: "k", owner: "o", fence: 1 } as Lease;
    const answer = completion("done");
    expect(sealing.foresee(lease, answer)).toBe(answer);
    const release: Settlement = { kind: "release", reason: "none", retentionMs: 1 };
    expect(sealing.foresee(lease, release)).toBe(release);
  });
});

describe("a crowd of requests", () => {
  it("has its answers sealed together, in the turn in which they are settled", async () => {
    const { store, settled } = distant();
    const { latchkey, post } = service({ store, encryption: ring({ perTenant: false }) });
    const foresee = vi.spyOn(latchkey.store as SealedStore<unknown>, "foresee");
    await Promise.all(["a", "b", "c"].map((key) => post(key)));
    expect(foresee).toHaveBeenCalledTimes(3);
    const foretold = foresee.mock.results.map(({ value }) => value as ForeseenCompletion);
    expect(foretold.every((one) => one instanceof ForeseenCompletion && one.sealed !== undefined)).toBe(true);
    expect(settled).toEqual(["a", "b", "c"].map((key) => ({ key, isSealed: true })));
  });

  it("makes no promise for what it reserves, where the store answers at once and nothing has to be opened", async () => {
    const { latchkey, post } = service({ store: memoryStore(), encryption: ring({ perTenant: false }) });
    const reserve = vi.spyOn(latchkey.store as SealedStore<unknown>, "reserveSealed");
    const first = await (await post("a")).text();
    const replay = await post("a");
    expect(reserve.mock.results.map(({ value }) => value)).toMatchObject([
      { kind: "execute" },
      { kind: "replay", response: { headers: [[sealedMark, "1"]] } },
    ]);
    expect([replay.headers.get("idempotency-replayed"), await replay.text()]).toEqual(["true", first]);
  });
});

describe("the end of a turn", () => {
  it("has one that throws fail alone", async () => {
    const end = new TurnEnd();
    const done = [
      end.soon(async () => "first"),
      end.soon(() => {
        throw new Error("cannot be sealed");
      }),
      end.soon(async () => "third"),
    ];
    const outcomes = await Promise.allSettled(done);
    expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
  });

  it("comes again for what is asked for while it comes", async () => {
    const end = new TurnEnd();
    const order: string[] = [];
    const first = end.soon(async () => {
      order.push("first");
      return end.soon(async () => order.push("second"));
    });
    await first;
    expect(order).toEqual(["first", "second"]);
  });
});
