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

  it("goes on with other scopes where it has stopped in one, so that none comes too short", async () => {
    let now = 1_000;
    const store = memoryStore({ clock: () => now });
    const reserve = (scope: string, key: string) =>
      store.reserve({
        scope,
        key,
        fingerprint: "f",
        owner: "owner",
        leaseMs: 10,
        retentionMs: 100,
        onCrash: "reconcile",
        reconcileAfterMs: 0,
        mode: "execute",
        route: undefined,
        request: undefined,
        waits: false,
      });
    for (let i = 0; i < 5; i += 1) await reserve("busy", `key-${i}`);
    await reserve("quiet", "key");
    now += 10;
    const unclaimed = { kind: "omitted", status: 408, bodyBytes: 0 } as const;
    expect(await store.sweep({ limit: 100, unclaimed })).toMatchObject({ unknown: 6 });
    const claimed: string[] = [];
    for (let i = 0; i < 4; i += 1) {
      const found = await store.claimUnknown({ limit: 1, backoff: { baseMs: 1_000, capMs: 1_000 } });
      claimed.push(...found.map(({ scope, key }) => `${scope} ${key}`));
    }
    expect(claimed).toEqual(["busy key-0", "quiet key", "busy key-1", "busy key-2"]);
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
