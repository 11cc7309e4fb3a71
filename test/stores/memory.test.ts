import { describe, it } from "vitest";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock, runStoreContract } from "../../src/testing/index.ts";

describe("memory store", () => {
  runStoreContract({
    it,
    lacks: {
      transactions: "there is no database that business writes could go to",
      "outbox push": "there is no outbox",
    },
    async open() {
      const clock = manualClock();
      return { store: memoryStore({ clock: clock.now }), passTime: clock.advance, close: async () => {} };
    },
  });
});
