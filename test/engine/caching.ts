import { expect } from "vitest";
import type { Store } from "../../src/core/store.ts";
import type { Engine } from "../../src/engine/engine.ts";
import type { Arrival } from "../../src/engine/verdict.ts";
import { answered, arrival, type Cluster, execution } from "./cluster.ts";

/** Executes a request to its end. */
export async function complete(engine: Engine, request: Arrival = arrival(), text = "done"): Promise<void> {
  const settled = await execution(await engine.arrive(request)).settle(answered(201, text));
  expect(settled.kind).toBe("stored");
}

/** How often the store is asked while this happens. */
export async function asked({ store }: Cluster, work: () => Promise<unknown>): Promise<number> {
  const before = store.calls.reserve;
  await work();
  return store.calls.reserve - before;
}

/** Sends each request once, and counts those that the store was asked about. */
export function askedFor(cluster: Cluster, engine: Engine, requests: readonly Arrival[]): Promise<number> {
  return asked(cluster, async () => {
    for (const request of requests) expect((await engine.arrive(request)).kind).toBe("replay");
  });
}

export function keys(count: number): Arrival[] {
  return Array.from({ length: count }, (_, index) => arrival({}, { key: `key-${index}` }));
}

/** A memory store whose next answers can be held back, as if they were on their way. */
export function slowStore() {
  const held: (() => void)[] = [];
  let holds = false;
  const answer = async <T>(promise: Promise<T>): Promise<T> => {
    const value = await promise;
    if (holds) await new Promise<void>((resolve) => held.push(resolve));
    return value;
  };
  return {
    hold() {
      holds = true;
    },
    release() {
      holds = false;
      for (const go of held.splice(0)) go();
    },
    over(store: Store): Store {
      const { reserve, settle } = store;
      return Object.assign(store, {
        reserve: (...request: Parameters<Store["reserve"]>) => answer(reserve.apply(store, request)),
        settle: (...settlement: Parameters<Store["settle"]>) => answer(settle.apply(store, settlement)),
      });
    },
  };
}
