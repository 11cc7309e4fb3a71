import { type DynamoDBClient, ScanCommand } from "@aws-sdk/client-dynamodb";
import { describe, expect, it } from "vitest";
import type { ForgetCounts, ReserveRequest, Store } from "../../src/core/store.ts";
import { type DynamoDbStoreOptions, dynamodbStore } from "../../src/stores/dynamodb/store.ts";
import { complete, created, lease, release } from "../../src/testing/contract/requests.ts";
import { dynamoDbClient } from "../support/dynamodb-server.ts";
import { again, request } from "../support/reserve-request.ts";
import { useDynamoDb } from "./dynamodb-support.ts";

const place = useDynamoDb();
let tenants = 0;

/** Each test has a tenant of its own, because they share a table. */
function freshTenant(): string {
  tenants += 1;
  return `tenant-${tenants}-of-${process.pid}`;
}

function open(options: Partial<DynamoDbStoreOptions> = {}, client: DynamoDBClient = place.client) {
  return dynamodbStore(client, { table: place.table, ...options });
}

async function execute(store: Store, overrides: Partial<ReserveRequest>): Promise<ReserveRequest> {
  const asked = request(overrides);
  await store.settle(await lease(store, asked), complete(created, 3_600_000));
  return asked;
}

async function forget(store: Store, tenantScope: string, limit = 100): Promise<ForgetCounts> {
  for (;;) {
    const counts = await store.forgetTenant({ tenantScope, limit });
    if (counts.removed === 0) return counts;
  }
}

/** All items of the table. */
async function everything(): Promise<readonly Record<string, unknown>[]> {
  const { Items = [] } = await place.client.send(
    new ScanCommand({ TableName: place.table, ConsistentRead: true }),
  );
  return Items;
}

describe("forgetting a tenant", () => {
  it("leaves nothing that names it, and no part of an answer", async () => {
    const store = open({ partBytes: 3 });
    const tenant = freshTenant();
    await execute(store, { scope: tenant });
    await execute(store, { scope: `${tenant} POST /rides` });
    const failed = request({ scope: tenant });
    await store.settle(await lease(store, failed), release);
    const expired = await execute(store, { scope: tenant });
    await store.bust(expired, { by: "Ada", reason: "wrong" });
    const isPart = (item: Record<string, unknown>) => JSON.stringify(item.pk).includes("body#");
    expect((await everything()).some(isPart)).toBe(true);
    expect(await forget(store, tenant, 2)).toEqual({ removed: 0, unsettled: 0 });
    const left = await everything();
    expect(left.filter((item) => JSON.stringify(item).includes(tenant))).toEqual([]);
    expect(left.some(isPart)).toBe(false);
  });

  it("finds records whose names are too long for a key, settled or not, and no other's", async () => {
    const store = open();
    const [tenant, other] = [freshTenant(), freshTenant()];
    const long = "x".repeat(2_000);
    const own = await execute(store, { scope: `${tenant} POST /${long}` });
    const running = request({ scope: `${tenant} PUT /${long}` });
    await store.reserve(running);
    const another = await execute(store, { scope: `${other} POST /${long}` });
    expect(await forget(store, tenant)).toEqual({ removed: 0, unsettled: 1 });
    expect((await store.read(own)).record).toBeUndefined();
    expect((await store.read(running)).record?.state).toBe("in_progress");
    expect((await store.read(another)).record?.state).toBe("completed");
  });

  it("leaves a record that is executed again before it is removed", async () => {
    const sure = open();
    const tenant = freshTenant();
    const failed = request({ scope: tenant });
    await sure.settle(await lease(sure, failed), release);
    const retry = again(failed);
    const client = dynamoDbClient(place.url);
    let isMet = false;
    client.middlewareStack.add(
      (next, { commandName }) =>
        async (args) => {
          const isRemoval =
            commandName === "DeleteItemCommand" && JSON.stringify(args.input).includes("record#");
          if (isRemoval && !isMet) {
            isMet = true;
            await sure.reserve(retry);
          }
          return next(args);
        },
      { step: "initialize", name: "meet" },
    );
    expect(await forget(open({}, client), tenant)).toEqual({ removed: 0, unsettled: 1 });
    expect(isMet).toBe(true);
    expect((await sure.read(failed)).record).toMatchObject({ state: "in_progress", fence: 2 });
    client.destroy();
  });

  it("counts what waits for a worker that can never come, and what waits in a parcel", async () => {
    const store = open();
    const tenant = freshTenant();
    await store.settle(await lease(store, request({ scope: tenant })), { ...release, resumeAfterMs: 0 });
    const held = await lease(store, request({ scope: tenant }));
    const message = {
      topic: "t",
      payload: "{}",
      partition: null,
      correlationId: "c",
      traceparent: null,
      delayMs: 0,
    };
    const messages = Array.from({ length: 120 }, (_, nth) => ({ ...message, key: `${nth}`, scope: tenant }));
    await store.transact?.(
      held,
      () => {},
      () => ({ progress: [], onCrash: "retry", messages }),
    );
    expect(await forget(store, tenant)).toEqual({ removed: 0, unsettled: 122 });
    expect(
      await store.claimResumable({ limit: 100, attemptsMax: 5, backoff: { baseMs: 1, capMs: 1 } }),
    ).toEqual({
      claimed: [],
      gaveUp: 0,
    });
  });
});

describe("a note", () => {
  it("is let go by DynamoDB some time after it is over, and for good only if it was written so", async () => {
    let now = Date.now();
    const { notes } = open({ clock: () => now });
    const note = { value: "1", version: "a" };
    await notes.write([
      { name: "short", expected: undefined, note, ttlMs: 5_000 },
      { name: "for-good", expected: undefined, note },
    ]);
    const items = await everything();
    const [short, forGood] = ["note#short", "note#for-good"].map((pk) =>
      items.find((item) => JSON.stringify(item.pk).includes(pk)),
    );
    const ttl = Number((short?.ttl as { N?: string } | undefined)?.N) * 1_000;
    expect(ttl).toBeGreaterThan(now + 5_000);
    expect(ttl).toBeLessThan(now + 2 * 3_600_000);
    expect(forGood).not.toHaveProperty("ttl");
    // Until then it is not there for anybody, though its item is.
    now += 5_000;
    expect((await notes.read(["short", "for-good"])).notes).toEqual([undefined, note]);
  });

  it("whose answer was lost is written once, and the client's own retry finds that out", async () => {
    const client = dynamoDbClient(place.url, { maxAttempts: 3 });
    let lost = 0;
    client.middlewareStack.add(
      (next, { commandName }) =>
        async (args) => {
          const answer = await next(args);
          if (commandName !== "PutItemCommand" || lost > 0) return answer;
          lost += 1;
          throw Object.assign(new Error("socket hang up"), { code: "ECONNRESET", name: "TimeoutError" });
        },
      { step: "finalizeRequest", priority: "low", name: "lose" },
    );
    const write = { name: "lost", expected: undefined, note: { value: "1", version: "own" } };
    expect((await open({}, client).notes.write([write])).answers).toEqual([{ kind: "written" }]);
    expect(lost).toBe(1);
    const other = { ...write, note: { value: "2", version: "other" } };
    expect((await open().notes.write([other])).answers).toEqual([{ kind: "conflict", note: write.note }]);
    client.destroy();
  });
});
