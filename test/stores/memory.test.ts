import { describe, it } from "vitest";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock, runStoreContract } from "../../src/testing/index.ts";

describe("memory store", () => {
  runStoreContract({
    it,
    async open() {
      const clock = manualClock();
      return { store: memoryStore({ clock: clock.now }), passTime: clock.advance, close: async () => {} };
    },
  });
});
