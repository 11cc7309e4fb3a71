import type { DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import type { Lease, Reservation, ReserveRequest, Store } from "../../src/core/store.ts";
import { type DynamoWrites, dynamodbStore } from "../../src/stores/dynamodb/store.ts";
import { dynamoDbClient } from "../support/dynamodb-server.ts";
import { again, request } from "../support/reserve-request.ts";
import { business, ridesTable, useDynamoDb } from "./dynamodb-support.ts";

const place = useDynamoDb();

const complete = {
  kind: "complete",
  response: { kind: "full", status: 201, headers: [], body: new Uint8Array([1, 2, 3]) },
  retentionMs: 60_000,
} as const;
const release = { kind: "release", reason: "nothing was sent", retentionMs: 60_000 } as const;

function open(client: DynamoDBClient, options: { clock?: () => number; clockSkewMs?: number } = {}) {
  return dynamodbStore(client, { table: place.table, ...options });
}

function leaseOf(reservation: Reservation): Lease {
  return reservation.kind === "execute" ? reservation.lease : expect.fail(reservation.kind);
}

async function lease(store: Store<DynamoWrites>, asked: ReserveRequest): Promise<Lease> {
  return leaseOf(await store.reserve(asked));
}

/**
 * A client to which the answers of these commands do not come, although DynamoDB has carried them out. It sends again
 * what it got no answer to, as the SDK does, up to `maxAttempts` times.
 */
function losingAnswers(commands: readonly string[], options: { times: number; maxAttempts: number }) {
  const client = dynamoDbClient(place.url, { maxAttempts: options.maxAttempts });
  let left = options.times;
  let lost = 0;
  client.middlewareStack.add(
    (next, context) => async (args) => {
      const answer = await next(args);
      if (left === 0 || !commands.includes(context.commandName ?? "")) return answer;
      left -= 1;
      lost += 1;
      throw Object.assign(new Error("socket hang up"), { code: "ECONNRESET", name: "TimeoutError" });
    },
    // Within the SDK's own retries.
    { step: "finalizeRequest", priority: "low", name: "loseAnswers" },
  );
  return { client, lost: () => lost };
}

describe("an answer that is lost", () => {
  it("to a reservation is found again by the client's own retry: the key is executed, and by nobody else", async () => {
    for (const prepare of [undefined, release]) {
      const sure = open(place.client);
      const asked = request();
      // The first is a new key; the second a retry, which is audited, and so written by a transaction.
      if (prepare !== undefined) await sure.settle(await lease(sure, asked), prepare);
      const { client, lost } = losingAnswers(["PutItemCommand", "TransactWriteItemsCommand"], {
        times: 1,
        maxAttempts: 3,
      });
      const reservation = await open(client).reserve(again(asked));
      expect(lost()).toBe(1);
      expect(leaseOf(reservation).fence).toBe(prepare === undefined ? 1 : 2);
      expect((await sure.reserve(again(asked))).kind).toBe("inFlight");
      expect((await sure.settle(leaseOf(reservation), complete)).kind).toBe("settled");
      const trail = await sure.audit({ scope: asked.scope, key: asked.key, limit: 10 });
      expect(trail).toHaveLength(prepare === undefined ? 0 : 2);
      client.destroy();
    }
  });

  it("to a reservation for good is an error, and whoever asks again under the same name has it", async () => {
    const asked = request();
    const { client, lost } = losingAnswers(["PutItemCommand"], { times: 1, maxAttempts: 1 });
    const store = open(client);
    await expect(store.reserve(asked)).rejects.toThrow(StoreError);
    expect(lost()).toBe(1);
    expect((await store.reserve(again(asked))).kind).toBe("inFlight");
    expect(await store.reserve({ ...asked, fingerprint: "v1:other" })).toEqual({ kind: "mismatch" });
    const reservation = await store.reserve(asked);
    expect(reservation.kind === "execute" && reservation.after).toBe("absent");
    expect((await store.settle(leaseOf(reservation), complete)).kind).toBe("settled");
    client.destroy();
  });

  it("to a settlement, a step or a heartbeat is found again", async () => {
    const sure = open(place.client);
    for (const settlement of [complete, release]) {
      const asked = request();
      const held = await lease(sure, asked);
      const { client, lost } = losingAnswers(["UpdateItemCommand", "TransactWriteItemsCommand"], {
        times: 1,
        maxAttempts: 3,
      });
      const store = open(client);
      expect((await store.settle(held, settlement)).kind).toBe("settled");
      expect(lost()).toBe(1);
      const { record } = await sure.read(asked);
      expect(record?.state).toBe(settlement === complete ? "completed" : "failed_retryable");
      client.destroy();
    }
    const held = await lease(sure, request());
    const { client, lost } = losingAnswers(["UpdateItemCommand"], { times: 2, maxAttempts: 3 });
    const store = open(client);
    expect(await store.renew([held], 60_000)).toEqual(["held"]);
    expect(await store.advance(held, { progress: [], onCrash: "retry" })).toBe("held");
    expect(lost()).toBe(2);
    client.destroy();
  });

  it("to a worker's claim is found again: what was hidden from the others is handed to it", async () => {
    const sure = open(place.client);
    const kept = { method: "POST", target: "/", tenant: "t", headers: [], body: new Uint8Array() };
    const asked = request({ mode: "accept", request: kept });
    await sure.reserve(asked);
    const { client, lost } = losingAnswers(["PutItemCommand"], { times: 1, maxAttempts: 3 });
    const backoff = { baseMs: 60_000, capMs: 60_000 };
    const { claimed } = await open(client).claimResumable({ limit: 1_000, attemptsMax: 9, backoff });
    expect(lost()).toBe(1);
    expect(claimed.map(({ record }) => record.key)).toContain(asked.key);
    client.destroy();
  });

  it("to an atomic phase is found again: it is committed once", async () => {
    const { client, lost } = losingAnswers(["TransactWriteItemsCommand"], { times: 1, maxAttempts: 3 });
    const store = open(client);
    const held = await lease(store, request());
    const id = `lost-${held.owner}`;
    const counted = { TableName: ridesTable(place.table), Key: { id: { S: id } } };
    const answer = await store.transact?.(
      held,
      (tx) =>
        tx.update({
          ...counted,
          UpdateExpression: "ADD n :one",
          ExpressionAttributeValues: { ":one": { N: "1" } },
        }),
      () => ({ progress: [], onCrash: "retry", messages: [] }),
    );
    expect(answer?.kind).toBe("committed");
    expect(lost()).toBe(1);
    expect(await business(place.client, place.table).ids()).toContain(id);
    const once = store.transact?.(
      held,
      (tx) =>
        tx.check({
          ...counted,
          ConditionExpression: "n = :one",
          ExpressionAttributeValues: { ":one": { N: "1" } },
        }),
      () => ({ progress: [], onCrash: "retry", messages: [] }),
    );
    expect((await once)?.kind).toBe("committed");
    client.destroy();
  });

  it("to a phase for good is an error, because nobody knows what became of it", async () => {
    const { client } = losingAnswers(["TransactWriteItemsCommand"], { times: 1, maxAttempts: 1 });
    const store = open(client);
    const held = await lease(store, request());
    const phase = store.transact?.(
      held,
      () => undefined,
      () => ({ progress: [], onCrash: "retry", messages: [] }),
    );
    await expect(phase).rejects.toThrow(StoreError);
    client.destroy();
  });
});

describe("another transaction on the same items", () => {
  /** A client whose writes meet another transaction, so often. DynamoDB Local has them wait instead. */
  function meeting(times: number) {
    const client = dynamoDbClient(place.url);
    const met = new Map<string, number>();
    client.middlewareStack.add(
      (next, { commandName = "" }) =>
        async (args) => {
          const before = met.get(commandName) ?? 0;
          const isWrite = /^(Put|Update|Delete|TransactWrite)/.test(commandName);
          if (!isWrite || before >= times) return next(args);
          met.set(commandName, before + 1);
          const { TransactItems } = args.input as { TransactItems?: unknown[] };
          if (TransactItems === undefined) throw named("TransactionConflictException");
          const CancellationReasons = TransactItems.map((_, nth) => ({
            Code: nth === 0 ? "TransactionConflict" : "None",
          }));
          throw Object.assign(named("TransactionCanceledException"), { CancellationReasons });
        },
      { step: "initialize", name: "meet" },
    );
    return { client, met: () => Object.fromEntries(met) };
  }
  const named = (name: string) => Object.assign(new Error("met another transaction"), { name });
  const message = {
    topic: "met",
    payload: "{}",
    partition: "met",
    key: "k",
    correlationId: "c",
    scope: "t",
    traceparent: null,
    delayMs: 0,
  };
  const phase = () => ({ progress: [], onCrash: "retry", messages: [message] }) as const;

  it("is waited for, by every verb", async () => {
    const { client, met } = meeting(2);
    const store = open(client);
    const asked = request();
    const held = await lease(store, asked);
    expect(await store.renew([held], 60_000)).toEqual(["held"]);
    expect((await store.transact?.(held, () => undefined, phase))?.kind).toBe("committed");
    expect((await store.settle(held, release)).kind).toBe("settled");
    expect(met()).toEqual({ PutItemCommand: 2, UpdateItemCommand: 2, TransactWriteItemsCommand: 2 });
    const next = await lease(store, again(asked));
    expect(next.fence).toBe(2);
    client.destroy();
  });

  it("is waited for by what a relay settles and what an operator revives", async () => {
    const sure = open(place.client);
    await sure.transact?.(await lease(sure, request()), () => undefined, phase);
    const batch = await sure.outbox?.claim({ owner: "met", limit: 100, leaseMs: 60_000 });
    const ids = batch?.filter(({ topic }) => topic === "met").map(({ id }) => id) ?? [];
    const settling = meeting(2);
    await open(settling.client).outbox?.settle(
      "met",
      ids.map((id) => ({ kind: "dead", id, error: "refused" })),
    );
    const reviving = meeting(2);
    expect(await open(reviving.client).outbox?.requeue(ids, "ada")).toBe(ids.length);
    expect(ids.length).toBeGreaterThan(0);
    for (const { client, met } of [settling, reviving]) {
      expect(met().TransactWriteItemsCommand).toBe(2);
      client.destroy();
    }
  });

  it("that does not end is an error, and nothing was written", async () => {
    const { client } = meeting(1_000);
    const sure = open(place.client);
    const asked = request();
    await expect(open(client).reserve(asked)).rejects.toThrow(StoreError);
    expect((await sure.read(asked)).record).toBeUndefined();
    const held = await lease(sure, asked);
    await expect(open(client).transact?.(held, () => undefined, phase)).rejects.toThrow(
      /nothing was written/,
    );
    expect((await sure.settle(held, complete)).kind).toBe("settled");
    client.destroy();
  });
});

it("fifty callers over four clients: one executes", async () => {
  const clients = Array.from({ length: 4 }, () => dynamoDbClient(place.url));
  const stores = clients.map((client) => open(client));
  for (const prepare of ["nothing", "a failed attempt", "a dead owner"] as const) {
    const asked = request({ onCrash: "retry" });
    const [first = expect.fail()] = stores;
    if (prepare === "a failed attempt") await first.settle(await lease(first, asked), release);
    if (prepare === "a dead owner") {
      const past = open(place.client, { clock: () => Date.now() - 3_600_000 });
      await lease(past, asked);
    }
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, nth) => stores[nth % 4]?.reserve(again(asked))),
    );
    expect(
      answers.filter((answer) => answer?.kind === "execute"),
      prepare,
    ).toHaveLength(1);
    expect(
      answers.filter((answer) => answer?.kind === "inFlight"),
      prepare,
    ).toHaveLength(49);
  }
  for (const client of clients) client.destroy();
});

it("a fresh request takes two round trips, a replay one, and so does a heartbeat of each lease", async () => {
  const client = dynamoDbClient(place.url);
  const sent: string[] = [];
  client.middlewareStack.add(
    (next, { commandName = "" }) =>
      (args) => {
        sent.push(commandName);
        return next(args);
      },
    { step: "initialize", name: "count" },
  );
  const store = open(client);
  const asked = request();
  const held = await lease(store, asked);
  expect(sent.splice(0)).toEqual(["PutItemCommand"]);
  await store.renew([held], 60_000);
  expect(sent.splice(0)).toEqual(["UpdateItemCommand"]);
  await store.settle(held, complete);
  expect(sent.splice(0)).toEqual(["UpdateItemCommand"]);
  expect((await store.reserve(again(asked))).kind).toBe("replay");
  expect(sent.splice(0)).toEqual(["PutItemCommand"]);
  client.destroy();
});

describe("clocks that differ", () => {
  /** Two processes; the clock of the second is two seconds ahead. */
  function two(clockSkewMs: number) {
    let time = Date.now();
    const slow = open(place.client, { clock: () => time, clockSkewMs });
    const fast = open(place.client, { clock: () => time + 2_000, clockSkewMs });
    return { slow, fast, pass: (ms: number) => (time += ms) };
  }
  const sweepAll = { limit: 1_000, unclaimed: complete.response };

  it("by no more than was said cost a lease nothing, and a dead owner's key waits that much longer", async () => {
    const { slow, fast, pass } = two(2_000);
    const asked = request({ leaseMs: 1_000, onCrash: "retry" });
    await lease(slow, asked);
    expect((await fast.reserve(again(asked))).kind).toBe("inFlight");
    await fast.sweep(sweepAll);
    expect((await slow.read(asked)).record?.state).toBe("in_progress");
    pass(999);
    expect((await fast.reserve(again(asked))).kind).toBe("inFlight");
    pass(1);
    expect(leaseOf(await fast.reserve(again(asked))).fence).toBe(2);
  });

  it("by more than was said cost a needless take-over, and the fence lets only one outcome count", async () => {
    const { slow, fast } = two(0);
    const asked = request({ leaseMs: 1_000, onCrash: "retry" });
    const stale = await lease(slow, asked);
    const current = await lease(fast, again(asked));
    expect(current.fence).toBe(2);
    expect(await slow.renew([stale], 1_000)).toEqual(["lost"]);
    expect(await slow.settle(stale, complete)).toEqual({ kind: "lost" });
    expect((await fast.settle(current, complete)).kind).toBe("settled");
    expect(await slow.settle(stale, complete)).toEqual({ kind: "lost" });
  });

  it("do not turn the audit trail of a record around", async () => {
    const { slow, fast } = two(2_000);
    const asked = request();
    await fast.settle(await lease(fast, asked), { ...release, reason: "first" });
    await slow.settle(await lease(slow, again(asked)), { ...release, reason: "second" });
    const trail = await slow.audit({ scope: asked.scope, key: asked.key, limit: 10 });
    expect(trail.map(({ to }) => to)).toEqual(["failed_retryable", "in_progress", "failed_retryable"]);
    expect([trail[0]?.reason, trail[2]?.reason]).toEqual(["second", "first"]);
  });

  it("do not let two relays have one lane", async () => {
    const { slow, fast, pass } = two(2_000);
    const held = await lease(slow, request());
    const partition = `skew-${held.owner}`;
    const message = {
      topic: "skew",
      payload: "{}",
      partition,
      key: "k",
      correlationId: "c",
      scope: "t",
      traceparent: null,
      delayMs: 0,
    };
    await slow.transact?.(
      held,
      () => undefined,
      () => ({ progress: [], onCrash: "retry", messages: [message] }),
    );
    const mine = (messages: readonly { partition: string | null }[] | undefined) =>
      messages?.filter((found) => found.partition === partition).length;
    expect(mine(await slow.outbox?.claim({ owner: "slow", limit: 100, leaseMs: 1_000 }))).toBe(1);
    expect(mine(await fast.outbox?.claim({ owner: "fast", limit: 100, leaseMs: 1_000 }))).toBe(0);
    pass(1_000);
    expect(mine(await fast.outbox?.claim({ owner: "fast", limit: 100, leaseMs: 1_000 }))).toBe(1);
  });
});

it("a table without capacity is an error that says so", async () => {
  const client = dynamoDbClient(place.url);
  client.middlewareStack.add(
    () => async () => {
      const name = "ProvisionedThroughputExceededException";
      throw Object.assign(new Error("The level of configured provisioned throughput was exceeded"), { name });
    },
    { step: "initialize", name: "throttle" },
  );
  await expect(open(client).reserve(request())).rejects.toThrow(StoreError);
  await expect(open(client).read(request())).rejects.toThrow(/capacity/);
  client.destroy();
});

it("a server that does not answer is an error that says so", async () => {
  const client = dynamoDbClient("http://127.0.0.1:1", { maxAttempts: 1 });
  const store = open(client);
  await expect(store.reserve(request())).rejects.toThrow(StoreError);
  await expect(store.renew([{ ...request(), fence: 1 }], 1_000)).rejects.toThrow(/DynamoDB did not do/);
  client.destroy();
});
