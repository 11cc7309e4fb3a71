import { describe, expect, it } from "vitest";
import type { RecordState } from "../../src/core/record.ts";
import type { Lease, ReserveRequest } from "../../src/core/store.ts";
import type { RedisStore } from "../../src/stores/redis/redis-store.ts";
import { complete, kept, lease, release, suspend } from "../../src/testing/contract/requests.ts";
import { again, request } from "../support/reserve-request.ts";
import { callsOf, redisBench } from "./redis-support.ts";

const bench = redisBench("batches");
const { open, keyOf } = bench;

/** Asks for all of them in one turn of the event loop, and so in two scripts at most. */
function leases(store: RedisStore, asked: readonly ReserveRequest[]): Promise<Lease[]> {
  return Promise.all(asked.map((each) => lease(store, each)));
}

async function stateOf(store: RedisStore, asked: ReserveRequest): Promise<RecordState | "absent"> {
  return (await store.read(asked)).record?.state ?? "absent";
}

const many = Array.from({ length: 24 }, (_, nth) => nth);

describe("calls that travel together", () => {
  it("are not taken for each other, whatever characters they are written in", async () => {
    const store = open();
    await store.ready();
    // Two halves that come to stand beside each other must not become one character, and move everything behind them.
    const texts = ["plain", "Zürich", "東京", "😀", "", "ends in a half \ud83d", "\ude00 begins with one"];
    const asked = many.map((nth) => {
      const [first = "", second = ""] = [texts[nth % texts.length], texts[(nth + 1) % texts.length]];
      return request({
        fingerprint: `v1:${nth}${first}`,
        owner: `${second}-${nth}`,
        route: `${second}${first}`,
      });
    });
    const before = await callsOf(bench.client, "evalsha");
    const held = await leases(store, asked);
    expect((await callsOf(bench.client, "evalsha")) - before).toBeLessThanOrEqual(2);
    const bodies = many.map((nth) => Buffer.alloc(nth * 7, nth));
    await Promise.all(
      held.map((each, nth) => store.settle(each, completeWith(bodies[nth], texts[nth % texts.length]))),
    );
    for (const [nth, each] of asked.entries()) {
      const { record } = await store.read(each);
      expect(record).toMatchObject({
        state: "completed",
        fingerprint: Buffer.from(each.fingerprint).toString(),
        route: Buffer.from(each.route ?? "").toString(),
        response: { headers: [["etag", texts[nth % texts.length]]] },
      });
      expect(
        record?.state === "completed" && record.response.kind === "full" && record.response.body,
      ).toEqual(new Uint8Array(bodies[nth] ?? []));
    }
  });

  it("are answered each for itself when some of the keys are in use", async () => {
    const store = open();
    const [done, running, forWorker, fresh] = [
      request(),
      request(),
      request({ mode: "accept", request: kept }),
      request(),
    ];
    await store.settle(await lease(store, done), complete());
    await lease(store, running);
    const answers = await Promise.all([
      ...[again(done), again(running), forWorker, fresh, again(done, { fingerprint: "v1:other" })].map(
        (each) => store.reserve(each),
      ),
    ]);
    expect(answers.map(({ kind }) => kind)).toEqual(["replay", "inFlight", "pending", "execute", "mismatch"]);
    expect(await bench.client.zcard(`${bench.tag}@sweep`)).toBe(3);
  });

  it("take what is new and leave what is there, whichever of them comes first", async () => {
    for (const usedAt of [0, 1, 2]) {
      const store = open();
      const asked = many.map(() => request());
      const isUsed = (nth: number) => nth % 3 === usedAt;
      const used = await leases(
        store,
        asked.filter((_, nth) => isUsed(nth)),
      );
      await Promise.all(used.map((each) => store.settle(each, complete())));
      const listed = await bench.client.zcard(`${bench.tag}@sweep`);
      const answers = await Promise.all(asked.map((each) => store.reserve(again(each))));
      expect(answers.map(({ kind }) => kind)).toEqual(
        many.map((nth) => (isUsed(nth) ? "replay" : "execute")),
      );
      for (const [nth, each] of asked.entries()) {
        expect(await stateOf(store, each), `call ${nth}`).toBe(isUsed(nth) ? "completed" : "in_progress");
      }
      const taken = many.filter((nth) => !isUsed(nth)).length;
      expect((await bench.client.zcard(`${bench.tag}@sweep`)) - listed).toBe(taken);
    }
  });

  it("end each lease as they say, when only some of them complete what nobody waits for", async () => {
    const store = open();
    const asked = many.map((nth) => request(nth % 6 === 4 ? { request: kept } : {}));
    const held = await leases(store, asked);
    const woken = await watchEach(
      store,
      asked.filter((_, nth) => nth % 6 === 3),
    );
    const answers = await Promise.all(
      held.map((each, nth) => {
        if (nth % 6 === 1) return store.settle(each, release);
        if (nth % 6 === 2) return store.settle(each, suspend);
        if (nth % 6 === 5) return store.settle({ ...each, owner: "somebody else" }, complete());
        return store.settle(each, complete());
      }),
    );
    const states = ["completed", "failed_retryable", "unknown", "completed", "completed", "in_progress"];
    for (const [nth, each] of asked.entries()) {
      expect(answers[nth]?.kind, `call ${nth}`).toBe(nth % 6 === 5 ? "lost" : "settled");
      expect(await stateOf(store, each), `call ${nth}`).toBe(states[nth % 6]);
      expect(await bench.client.exists(keyOf(each).replace("}", "}q")), `the request of call ${nth}`).toBe(0);
    }
    expect(await bench.client.zcard(`${bench.tag}@sweep`)).toBe(many.length / 6);
    await expect.poll(() => woken.size).toBe(many.length / 6);
    // What was said is said again, because its answer was lost: by whoever it was that ended the lease.
    const told = await Promise.all(held.map((each) => store.settle(each, complete())));
    const kinds = ["settled", "lost", "lost", "settled", "settled", "settled"];
    expect(told.map(({ kind }) => kind)).toEqual(many.map((nth) => kinds[nth % 6]));
  });

  it("leave nothing behind in what workers look through, however many there were", async () => {
    const store = open();
    const asked = Array.from({ length: 200 }, () => request());
    const held = await leases(store, asked);
    expect(await bench.client.zcard(`${bench.tag}@sweep`)).toBe(asked.length);
    await Promise.all(held.map((each) => store.settle(each, complete())));
    expect(await bench.client.exists(`${bench.tag}@sweep`)).toBe(0);
    expect(await stateOf(store, asked[199] ?? request())).toBe("completed");
  });
});

function completeWith(body = new Uint8Array(), etag = "") {
  return complete({ kind: "full", status: 201, headers: [["etag", etag]], body }, 60_000);
}

async function watchEach(store: RedisStore, asked: readonly ReserveRequest[]): Promise<ReadonlySet<string>> {
  const woken = new Set<string>();
  for (const each of asked) await store.watch(each, () => woken.add(each.key));
  return woken;
}
