import { describe, expect, it } from "vitest";
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

  it("forgets notes whose time is over when it is reaped, also those that nobody asks for any more", async () => {
    let now = 1_000;
    const store = memoryStore({ clock: () => now });
    const note = { value: "kept", version: "1" };
    await store.notes.write([
      { name: "over", expected: undefined, note, ttlMs: 100 },
      { name: "not-over", expected: undefined, note, ttlMs: 1_000 },
      { name: "endless", expected: undefined, note },
    ]);
    now += 100;
    await store.reap({ limit: 10, expiry: "delete" });
    // Only what is not there any more stays away when the clock is set back.
    now -= 100;
    const { notes } = await store.notes.read(["over", "not-over", "endless"]);
    expect(notes).toEqual([undefined, note, note]);
  });
});
