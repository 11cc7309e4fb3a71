import type { DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { afterEach, describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import type { Lease, ReserveRequest, Store } from "../../src/core/store.ts";
import { dynamodbStore } from "../../src/stores/dynamodb/store.ts";
import { dynamoDbClient } from "../support/dynamodb-server.ts";
import { again, request } from "../support/reserve-request.ts";
import { useDynamoDb } from "./dynamodb-support.ts";

const place = useDynamoDb();
const clients: DynamoDBClient[] = [];
afterEach(() => {
  for (const client of clients.splice(0)) client.destroy();
});

let time = Date.now();

function open(client = place.client): Store {
  return dynamodbStore(client, { table: place.table, clock: () => time, clockSkewMs: 0 });
}

async function lease(store: Store, asked: ReserveRequest): Promise<Lease> {
  const reservation = await store.reserve(asked);
  if (reservation.kind !== "execute") expect.fail(`expected to execute, got ${reservation.kind}`);
  return reservation.lease;
}

/** A store that has no capacity for the records whose keys have this in them. */
function throttled(word: string): Store {
  const client = dynamoDbClient(place.url);
  clients.push(client);
  client.middlewareStack.add(
    (next, { commandName = "" }) =>
      async (args) => {
        const isAbout = /^(Put|Update|Delete|TransactWrite)/.test(commandName);
        if (!isAbout || !JSON.stringify(args.input).includes(word)) return next(args);
        throw Object.assign(new Error("throttled"), { name: "ProvisionedThroughputExceededException" });
      },
    { step: "initialize", name: "throttle" },
  );
  return open(client);
}

const suspend = { kind: "suspend", reason: "no answer came", reconcileAfterMs: 0 } as const;
const backoff = { baseMs: 60_000, capMs: 60_000 };
const kept = { method: "POST", target: "/", tenant: "t", headers: [], body: new Uint8Array() };
const unclaimed = { kind: "omitted", status: 408, bodyBytes: 0 } as const;

/** Twenty records of which the first one's key has `word` in it, and their keys but for that one. */
async function twenty(word: string, prepare: (asked: ReserveRequest) => Promise<unknown>) {
  const keys = Array.from({ length: 20 }, (_, nth) => (nth === 0 ? `${word}-throttled` : `${word}-${nth}`));
  for (const key of keys) await prepare(request({ key, leaseMs: 1_000, onCrash: "retry", request: kept }));
  return keys.slice(1).sort();
}

describe("a record that cannot be written", () => {
  it("does not keep the leases of others from being renewed, and nothing is said of its own", async () => {
    const sure = open();
    const leases = await Promise.all(
      ["renew-1", "renew-throttled", "renew-3"].map((key) => lease(sure, request({ key }))),
    );
    const store = throttled("renew-throttled");
    expect(await store.renew(leases, 60_000)).toEqual(["held", "unknown", "held"]);
    await expect(store.renew(leases.slice(1, 2), 60_000)).rejects.toThrow(StoreError);
  });

  it("does not keep others that were claimed from whoever claimed them", async () => {
    const sure = open();
    const unknown = await twenty("unknown", async (asked) => sure.settle(await lease(sure, asked), suspend));
    const reconciling = await throttled("unknown-throttled").claimUnknown({ limit: 100, backoff });
    expect(reconciling.map(({ key }) => key).sort()).toEqual(unknown);

    const pending = await twenty("pending", (asked) => sure.reserve({ ...asked, mode: "accept" }));
    const store = throttled("pending-throttled");
    const { claimed } = await store.claimResumable({ limit: 100, attemptsMax: 9, backoff });
    expect(claimed.map(({ record }) => record.key).sort()).toEqual(pending);
    // The others are hidden now: where nothing at all could be done, that is said.
    await expect(store.claimResumable({ limit: 100, attemptsMax: 9, backoff })).rejects.toThrow(StoreError);
    time += 3_600_000;
    await sure.sweep({ limit: 1_000, unclaimed });
  });

  it("does not keep others from being swept and reaped", async () => {
    const sure = open();
    const crashed = await twenty("crashed", (asked) => sure.reserve(asked));
    time += 2_000;
    const store = throttled("crashed-throttled");
    expect((await store.sweep({ limit: 1_000, unclaimed })).retryable).toBe(crashed.length);

    for (const key of crashed) {
      const held = await lease(sure, again(request({ key, onCrash: "retry" })));
      await sure.settle(held, { kind: "complete", response: unclaimed, retentionMs: 1 });
    }
    time += 10;
    const reaping = throttled("crashed-1");
    const { expired } = await reaping.reap({ limit: 1_000, expiry: "soft" });
    // The keys from crashed-10 on have the same beginning.
    expect(expired).toBeGreaterThanOrEqual(8);
    expect((await reaping.reap({ limit: 1_000, expiry: "delete" })).deleted).toBeGreaterThanOrEqual(8);
  });
});

describe("a body whose answer is taken away while it is read", () => {
  /** A store to which this happens before it reads the parts of a body. */
  function meeting(happens: () => Promise<unknown>): Store {
    const client = dynamoDbClient(place.url);
    clients.push(client);
    let isOver = false;
    client.middlewareStack.add(
      (next, { commandName }) =>
        async (args) => {
          if (commandName === "BatchGetItemCommand" && !isOver) {
            isOver = true;
            await happens();
          }
          return next(args);
        },
      { step: "initialize", name: "meet" },
    );
    return open(client);
  }

  async function completed(): Promise<ReserveRequest> {
    const asked = request();
    const response = { kind: "full", status: 201, headers: [], body: new Uint8Array(200_000) } as const;
    await open().settle(await lease(open(), asked), { kind: "complete", response, retentionMs: 60_000 });
    return asked;
  }
  const bust = { by: "Ada", reason: "wrong" };

  it("is decided about anew: a busted key is executed, and one that was reaped is read as it is", async () => {
    const replayed = await completed();
    const answer = await meeting(() => open().bust(replayed, bust)).reserve(again(replayed));
    expect(answer.kind === "execute" && answer.after).toBe("expired");

    const read = await completed();
    const { record } = await meeting(() => open().bust(read, bust)).read(read);
    expect(record?.state).toBe("expired");

    const reaped = await completed();
    const reaping = async () => {
      const later = dynamodbStore(place.client, { table: place.table, clock: () => time + 120_000 });
      await later.reap({ limit: 1_000, expiry: "delete" });
    };
    expect((await meeting(reaping).read(reaped)).record).toBeUndefined();
  });

  it("is in flight where somebody has begun again", async () => {
    const asked = await completed();
    const happens = async () => {
      await open().bust(asked, bust);
      await lease(open(), again(asked));
    };
    expect((await meeting(happens).reserve(again(asked))).kind).toBe("inFlight");
  });
});
