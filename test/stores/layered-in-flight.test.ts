import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import type { Reservation, ReserveRequest } from "../../src/core/store.ts";
import { type RedisServer, startRedis } from "../support/redis-server.ts";
import { inUse, ioredis, type Layered, layeredOver } from "./layered-support.ts";
import { again, complete, leaseOf, request, useDatabase } from "./postgres-support.ts";

const database = useDatabase();
const cleanUp: (() => Promise<unknown>)[] = [];
let redis: RedisServer;

beforeAll(async () => {
  redis = await startRedis();
});
afterEach(async () => {
  for (const step of cleanUp.splice(0).reverse()) await step();
});
afterAll(() => redis.stop());

async function started(options: Parameters<typeof layeredOver>[2] = {}): Promise<Layered> {
  const layered = layeredOver(database.pool(), ioredis(redis.url), options);
  cleanUp.push(layered.close);
  await inUse(layered);
  return layered;
}

let sequence = 0;
const fresh = () => {
  sequence += 1;
  return request({ key: `in-flight-${sequence}` });
};

/** Asks over and over, for a while or until the front has answered some times, and says what the front said. */
async function askFor(
  { ms, answersMax = Number.POSITIVE_INFINITY }: { readonly ms: number; readonly answersMax?: number },
  { store, truth }: Layered,
  first: ReserveRequest,
): Promise<Reservation[]> {
  const answers: Reservation[] = [];
  const until = performance.now() + ms;
  while (performance.now() < until && answers.length < answersMax) {
    const before = truth.calls.reserve;
    const answer = await store.reserve(again(first));
    if (truth.calls.reserve === before) answers.push(answer);
    await sleep(2);
  }
  return answers;
}

it("a long execution that another process asks for is answered by the front, and never after its end", async () => {
  const [one, other] = [await started(), await started()];
  for (let round = 0; round < 3; round += 1) {
    const first = fresh();
    const lease = await leaseOf(one.store, first);
    // The older it is, the longer is each pledge, and the more would be left of it after an end that did not wait.
    await sleep(2_000);
    const answers = await askFor({ ms: 10_000, answersMax: 20 }, other, first);
    expect(answers).toHaveLength(20);
    for (const answer of answers) {
      expect(answer).toMatchObject({ kind: "inFlight" });
      expect(answer.kind === "inFlight" && answer.retryAfterMs).toBeGreaterThan(45_000);
    }
    const before = performance.now();
    await one.store.settle(lease, { kind: "release", reason: "not done", retentionMs: 60_000 });
    // A twentieth of what it took, and what a busy machine needs.
    expect(performance.now() - before).toBeLessThan(500 + 1_000);
    expect(await other.store.reserve(again(first))).toMatchObject({ kind: "execute" });
  }
});

it("an execution that nobody asks for leaves no trace, and its end is not delayed", async () => {
  const one = await started({ prefix: "quiet" });
  const observer = new Redis(redis.url);
  cleanUp.push(async () => observer.disconnect());
  const names = () => observer.keys("quiet:*");
  const before = await names();
  const first = fresh();
  const lease = await leaseOf(one.store, first);
  await sleep(700);
  expect(await names()).toEqual(before);
  await one.store.settle(lease, complete);
  expect((await names()).length).toBe(before.length + 1);
});

it("a crashed process's execution is in flight for no longer than its lease", async () => {
  const [one, other] = [await started(), await started()];
  const first = { ...fresh(), leaseMs: 1_000, onCrash: "retry" } as const;
  const before = performance.now();
  await leaseOf(one.store, first);
  const reservation = await (async () => {
    for (;;) {
      const answer = await other.store.reserve(again(first));
      if (answer.kind !== "inFlight") return answer;
      await sleep(2);
    }
  })();
  expect(reservation).toMatchObject({ kind: "execute", after: "crash" });
  expect(performance.now() - before).toBeLessThan(1_000 + 1_000);
});

it.each([
  ["inFlight: false", { inFlight: false }],
  ['lock: "advisory"', { postgres: { lock: "advisory" } }],
] as const)("with %s only the truth says that something is in flight", async (_, options) => {
  const [one, other] = [await started(options), await started(options)];
  const first = fresh();
  await leaseOf(one.store, first);
  expect(await askFor({ ms: 900 }, other, first)).toEqual([]);
});
