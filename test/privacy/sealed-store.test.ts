import Database from "libsql";
import { describe, it } from "vitest";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock, runStoreContract } from "../../src/testing/index.ts";
import { harness, useFolder } from "../stores/sqlite-support.ts";
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

describe("a sealed sqlite store", () => {
  const place = useFolder();
  const reason = "no process hears of another's writes to a file";
  runStoreContract({
    it,
    lacks: { push: reason, "bust news": reason, "bust generation": reason },
    async open() {
      const opened = harness(place.path, new Database(place.path));
      return { ...opened, store: sealed(opened.store, ring({ refusePlain: true })) };
    },
  });
});
