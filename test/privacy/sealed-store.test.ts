import { describe, it } from "vitest";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock, runStoreContract } from "../../src/testing/index.ts";
import { ring, sealed } from "./support.ts";

for (const perTenant of [true, false]) {
  describe(`a sealed memory store, with ${perTenant ? "a key for each tenant" : "one key for all"}`, () => {
    runStoreContract({
      it,
      lacks: {
        transactions: "there is no database that business writes could go to",
        "outbox push": "there is no outbox",
      },
      async open() {
        const clock = manualClock();
        const store = sealed(memoryStore({ clock: clock.now }), ring({ perTenant, refusePlain: true }));
        return { store, passTime: clock.advance, close: async () => {} };
      },
    });
  });
}
