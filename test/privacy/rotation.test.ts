import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import { firstKey, ring, secondKey, service, storedAnswer } from "./support.ts";

const thirdKey = { id: "third", secret: Buffer.alloc(32, 3) };

describe("rotating keys", () => {
  it("loses nothing while requests run in several processes: every replay has the first answer's bytes", async () => {
    const clock = manualClock();
    const store = memoryStore({ clock: clock.now });
    const executed = new Map<string, number>();
    const processes = Array.from({ length: 4 }, () => {
      const encryption = ring({}, [firstKey, secondKey, thirdKey]);
      const api = service({ store, encryption, runtime: clock }, {}, async (request) => {
        const key = request.headers.get("idempotency-key") ?? "";
        executed.set(key, (executed.get(key) ?? 0) + 1);
        await new Promise(setImmediate);
        return new Response(randomBytes(300), { status: 201 });
      });
      return { api, encryption };
    });
    const answers = new Map<string, Buffer>();
    const usedKeys = new Set<string>();
    const bytes = async (answer: Response) => Buffer.from(await answer.arrayBuffer());

    for (let round = 0; round < 30; round += 1) {
      // Each process rotates at another time, and not all of them in the same order.
      const turned = processes[round % 4];
      turned?.encryption.rotate([firstKey, secondKey, thirdKey][(round * 7) % 3] ?? firstKey);
      await Promise.all(
        processes.flatMap(({ api }, index) =>
          ["acme", "globex", "initech"].map(async (tenant) => {
            const key = `${round}-${index}`;
            const answer = await api.post(key, "hello", tenant);
            expect(answer.status).toBe(201);
            answers.set(`${tenant} ${key}`, await bytes(answer));
          }),
        ),
      );
      usedKeys.add(turned?.encryption.currentId ?? "");
      await clock.advance(7_000);
    }

    expect(usedKeys).toEqual(new Set(["first", "second", "third"]));
    expect([...executed.values()].every((times) => times === 3)).toBe(true); // Once for each tenant.
    for (const [name, first] of answers) {
      const [tenant = "", key = ""] = name.split(" ");
      for (const { api } of processes) {
        const replay = await api.post(key, "hello", tenant);
        expect(replay.headers.get("idempotency-replayed")).toBe("true");
        expect((await bytes(replay)).equals(first)).toBe(true);
      }
    }
  });

  it("seals with the new key at once, and opens with the old one until it is retired", async () => {
    const clock = manualClock();
    const store = memoryStore({ clock: clock.now });
    const encryption = ring();
    const api = service({ store, encryption, runtime: clock, retentionMs: 3_600_000 });
    await api.post("old");
    encryption.rotate(secondKey);
    await api.post("new");
    expect(Buffer.from((await storedAnswer(store, "new")).body).includes("second")).toBe(true);
    expect((await api.post("old")).status).toBe(201);

    // The tenant's secret is sealed anew when it is looked for; the answers are gone when their time is over.
    await clock.advance(60_000);
    await api.post("more");
    await clock.advance(3_600_000);
    encryption.retire("first");
    const fresh = service({ store, encryption: ring({}, [secondKey]), runtime: clock });
    expect((await fresh.post("new-too")).status).toBe(201);
    expect((await api.post("new-as-well")).status).toBe(201);
    expect(api.storeErrors()).toEqual([]);
  });

  it("too early, says which key is missing, and executes nothing until it is back", async () => {
    const store = memoryStore();
    await service({ store, encryption: ring() }).post("k1");
    const api = service({ store, encryption: ring({}, [secondKey]) });
    expect((await api.post("k1")).status).toBe(503);
    expect((await api.post("k2")).status).toBe(503);
    expect(api.storeErrors()[0]).toMatch(/"first".*resealTenant/);
    expect(api.runs()).toBe(0);
  });

  it("can be ended for a tenant that nobody hears of: its secret is sealed anew on request", async () => {
    const store = memoryStore();
    await service({ store, encryption: ring() }).post("k1");
    const both = service({ store, encryption: ring({}, [secondKey, firstKey]) });
    await both.latchkey.resealTenant({ tenant: "acme" });
    const api = service({ store, encryption: ring({}, [secondKey]) });
    expect((await api.post("k2")).status).toBe(201);
    // The answer itself was sealed with the retired key.
    expect((await api.post("k1")).status).toBe(503);
    expect(api.runs()).toBe(1);
  });
});
