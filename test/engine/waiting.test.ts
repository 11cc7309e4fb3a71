import { expect, it } from "vitest";
import type { Store, Unwatch } from "../../src/core/store.ts";
import { systemRuntime } from "../../src/engine/runtime.ts";
import { waitForChange } from "../../src/engine/waiting.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";

/** Waits until it was woken once, and tells how often it has looked before that and in all. */
async function looks(isRunning: boolean | undefined): Promise<{ before: number; inAll: number }> {
  let looked = 0;
  let before: number | undefined;
  const store: Store = memoryStore();
  await waitForChange({
    store: Object.assign(store, {
      async watch(_: unknown, wake: () => void): Promise<Unwatch> {
        setImmediate(() => {
          before = looked;
          wake();
        });
        return Object.assign(() => {}, isRunning === undefined ? {} : { isRunning });
      },
      capabilities: { ...store.capabilities, push: true },
    }),
    runtime: systemRuntime,
    id: { scope: "s", key: "k" },
    isTold: false,
    until: systemRuntime.now() + 60_000,
    async changed() {
      looked += 1;
      return before !== undefined;
    },
    withinLimit: (promise) => promise,
    onWatchError: () => {},
  });
  return { before: before ?? Number.NaN, inAll: looked };
}

it("whoever waits looks once when the watch has begun, and again when it is woken", async () => {
  expect(await looks(undefined)).toEqual({ before: 1, inAll: 2 });
  expect(await looks(false)).toEqual({ before: 1, inAll: 2 });
});

it("a store that says that the request is running is not asked before it says more", async () => {
  expect(await looks(true)).toEqual({ before: 0, inAll: 1 });
});
