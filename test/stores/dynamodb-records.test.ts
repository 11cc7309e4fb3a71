import {
  BatchGetItemCommand,
  DeleteItemCommand,
  type DynamoDBClient,
  PutItemCommand,
  paginateScan,
  ScanCommand,
} from "@aws-sdk/client-dynamodb";
import { describe, expect, it } from "vitest";
import { ConfigError, StoreError } from "../../src/core/errors.ts";
import type { Lease, ReserveRequest, Settlement, Store } from "../../src/core/store.ts";
import {
  createTable,
  type DynamoDbStoreOptions,
  dynamodbStore,
  tableDefinition,
} from "../../src/stores/dynamodb/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import { again, request } from "../support/reserve-request.ts";
import { itemOf, useDynamoDb } from "./dynamodb-support.ts";

const place = useDynamoDb();
// It begins now, because what is long past by the real time is deleted by DynamoDB itself.
const clock = manualClock({ startMs: Date.now() });

function open(options: Partial<DynamoDbStoreOptions> = {}): Store {
  return dynamodbStore(place.client, { table: place.table, clock: clock.now, clockSkewMs: 0, ...options });
}

async function lease(store: Store, asked: ReserveRequest): Promise<Lease> {
  const reservation = await store.reserve(asked);
  if (reservation.kind !== "execute") expect.fail(`expected to execute, got ${reservation.kind}`);
  return reservation.lease;
}

function complete(body: Uint8Array, retentionMs = 60_000): Extract<Settlement, { kind: "complete" }> {
  return { kind: "complete", response: { kind: "full", status: 201, headers: [], body }, retentionMs };
}
const release = { kind: "release", reason: "nothing was sent", retentionMs: 60_000 } as const;
const suspend = { kind: "suspend", reason: "no answer came", reconcileAfterMs: 0 } as const;

/** No two places of it look alike, so that parts in a wrong order are noticed. */
function bodyOf(size: number): Uint8Array {
  const body = new Uint8Array(size);
  for (let index = 0; index < size; index += 1) body[index] = (index * 31 + (index >> 8) * 17) % 251;
  return body;
}

async function replayed(store: Store, asked: ReserveRequest): Promise<Uint8Array> {
  const answer = await store.reserve(again(asked));
  if (answer.kind !== "replay" || answer.response.kind !== "full") expect.fail(answer.kind);
  return new Uint8Array(answer.response.body);
}

describe("large bodies", () => {
  it("are replayed byte for byte, however many parts they have", async () => {
    for (const size of [0, 1, 64 * 1024, 64 * 1024 + 1, 3 * 1024 * 1024]) {
      const store = open();
      const asked = request();
      expect((await store.settle(await lease(store, asked), complete(bodyOf(size)))).kind).toBe("settled");
      expect(Buffer.compare(await replayed(store, asked), bodyOf(size)), `${size} bytes`).toBe(0);
      const { record } = await store.read(asked);
      if (record?.state !== "completed" || record.response.kind !== "full") expect.fail(record?.state);
      expect(record.response.body.byteLength).toBe(size);
      const item = await itemOf(place, asked);
      expect(item?.responseBody === undefined, `${size} bytes: in parts`).toBe(size > 64 * 1024);
    }
  });

  it("are kept in the record itself where they are not to be split, up to what it holds", async () => {
    const store = open({ largeBodies: "refuse" });
    const { responseBytesMax } = store.capabilities;
    const asked = request();
    await store.settle(await lease(store, asked), complete(bodyOf(responseBytesMax)));
    expect((await itemOf(place, asked))?.responseBody?.B?.byteLength).toBe(responseBytesMax);
    expect(Buffer.compare(await replayed(store, asked), bodyOf(responseBytesMax))).toBe(0);
  });

  it("above what the store keeps are refused, and the lease stays good", async () => {
    for (const largeBodies of ["split", "refuse"] as const) {
      const store = open({ largeBodies });
      const held = await lease(store, request());
      const tooLarge = complete(new Uint8Array(store.capabilities.responseBytesMax + 1));
      await expect(store.settle(held, tooLarge)).rejects.toThrow(StoreError);
      expect((await store.settle(held, complete(bodyOf(1)))).kind).toBe("settled");
    }
  });

  it("are never replayed torn: a part that is missing or changed is an error, and nothing is executed", async () => {
    for (const harm of ["missing", "changed", "shorter"] as const) {
      const store = open({ partBytes: 10 });
      const asked = request();
      await store.settle(await lease(store, asked), complete(bodyOf(35)));
      const name = (await itemOf(place, asked))?.bodyName?.S;
      await harmPart(place.client, { pk: { S: `body#${name}#2` }, sk: { S: "body" } }, harm);
      await expect(store.reserve(again(asked)), harm).rejects.toThrow(/missing or was changed/);
      await expect(store.read(asked), harm).rejects.toThrow(StoreError);
      // An operator has a way out.
      expect((await store.bust(asked, { by: "Ada", reason: harm })).kind).toBe("busted");
      expect((await store.reserve(again(asked))).kind).toBe("execute");
    }
  });

  it("may be gone when their record has expired: the key can be used again, and the record reads as expired", async () => {
    const store = open({ partBytes: 10 });
    const asked = request();
    await store.settle(await lease(store, asked), complete(bodyOf(35), 1_000));
    const name = (await itemOf(place, asked))?.bodyName?.S;
    await harmPart(place.client, { pk: { S: `body#${name}#0` }, sk: { S: "body" } }, "missing");
    await clock.advance(1_001);
    expect((await store.read(asked)).record?.state).toBe("expired");
    const reservation = await store.reserve(again(asked));
    expect(reservation.kind === "execute" && reservation.after).toBe("expired");
  });

  it("are deleted with the answer that they belong to: busted, reaped, or in the way of another request", async () => {
    const store = open({ partBytes: 10 });
    const ends: Readonly<Record<string, (asked: ReserveRequest) => Promise<unknown>>> = {
      busted: (asked) => store.bust(asked, { by: "Ada", reason: "wrong" }),
      "marked as expired": () => store.reap({ limit: 1_000, expiry: "soft" }),
      deleted: () => store.reap({ limit: 1_000, expiry: "delete" }),
      "used again": (asked) => store.reserve(again(asked)),
    };
    for (const [how, end] of Object.entries(ends)) {
      const asked = request();
      await store.settle(await lease(store, asked), complete(bodyOf(35), 1_000));
      const name = (await itemOf(place, asked))?.bodyName?.S ?? expect.fail("it is not split");
      expect(await partsOf(name), how).toBe(4);
      if (how !== "busted") await clock.advance(1_001);
      await end(asked);
      expect(await partsOf(name), how).toBe(0);
    }
  });

  it("of a settlement that has lost leave the record alone", async () => {
    const store = open({ partBytes: 10 });
    const asked = request();
    const held = await lease(store, asked);
    const before = await allParts();
    const late = complete(bodyOf(35), Number.POSITIVE_INFINITY);
    expect(await store.settle({ ...held, owner: "thief" }, late)).toEqual({ kind: "lost" });
    expect((await store.read(asked)).record?.state).toBe("in_progress");
    // They have no end, so that nobody else would ever delete them.
    expect(await allParts()).toEqual(before);
  });
});

/** The parts of all bodies. */
async function allParts(): Promise<readonly (string | undefined)[]> {
  const { client, table: TableName } = place;
  const isPart = { FilterExpression: "sk = :body", ExpressionAttributeValues: { ":body": { S: "body" } } };
  const names: (string | undefined)[] = [];
  for await (const { Items = [] } of paginateScan(
    { client },
    { TableName, ConsistentRead: true, ...isPart },
  )) {
    names.push(...Items.map(({ pk }) => pk?.S));
  }
  return names.sort();
}

/** How many of its first four parts are there. */
async function partsOf(name: string): Promise<number> {
  const { client, table } = place;
  const Keys = [0, 1, 2, 3].map((nth) => ({ pk: { S: `body#${name}#${nth}` }, sk: { S: "body" } }));
  const get = new BatchGetItemCommand({ RequestItems: { [table]: { Keys, ConsistentRead: true } } });
  return (await client.send(get)).Responses?.[table]?.length ?? 0;
}

async function harmPart(
  client: DynamoDBClient,
  key: { pk: { S: string }; sk: { S: string } },
  harm: "missing" | "changed" | "shorter",
): Promise<void> {
  const { table: TableName } = place;
  if (harm === "missing") {
    await client.send(new DeleteItemCommand({ TableName, Key: key }));
    return;
  }
  const body = new Uint8Array(harm === "shorter" ? 9 : 10);
  await client.send(new PutItemCommand({ TableName, Item: { ...key, body: { B: body } } }));
}

describe("what does not fit into an item", () => {
  const large = { method: "POST", target: "/", tenant: "t", headers: [], body: new Uint8Array(410_000) };

  it("is refused before anything is written: a request that is kept", async () => {
    const store = open();
    const asked = request({ request: large });
    await expect(store.reserve(asked)).rejects.toThrow(/requestBytesMax/);
    expect((await store.read(asked)).record).toBeUndefined();
  });

  it("is refused, and the lease stays good: the results of phases", async () => {
    const store = open();
    const asked = request();
    const held = await lease(store, asked);
    const progress = [
      { kind: "atomic", name: "large", result: JSON.stringify("x".repeat(420_000)) },
    ] as const;
    await expect(store.advance(held, { progress, onCrash: "retry" })).rejects.toThrow(StoreError);
    expect(await store.renew([held], 60_000)).toEqual(["held"]);
  });
});

describe("the attribute by which DynamoDB deletes", () => {
  const ttlOf = async (asked: ReserveRequest) => (await itemOf(place, asked))?.ttl?.N;

  it("is on records that are settled, a day after they expire, and on no other", async () => {
    const store = open();
    const completed = request();
    const released = request();
    for (const asked of [completed, released]) {
      const held = await lease(store, asked);
      expect(await ttlOf(asked), "in progress").toBeUndefined();
      await store.settle(held, asked === completed ? complete(bodyOf(1)) : release);
      expect(Number(await ttlOf(asked)) * 1_000).toBeGreaterThanOrEqual(
        clock.now() + 60_000 + 24 * 3_600_000,
      );
    }
    await lease(store, again(released));
    expect(await ttlOf(released), "in progress again").toBeUndefined();

    const unknown = request();
    await store.settle(await lease(store, unknown), suspend);
    expect(await ttlOf(unknown), "unknown").toBeUndefined();

    const pending = request({ mode: "accept" });
    await store.reserve(pending);
    expect(await ttlOf(pending), "pending").toBeUndefined();

    const halfDone = request();
    const held = await lease(store, halfDone);
    await store.advance(held, {
      progress: [{ kind: "atomic", name: "first", result: "1" }],
      onCrash: "resume",
    });
    await store.settle(held, release);
    expect(await ttlOf(halfDone), "half done").toBeUndefined();

    const toBeFinished = request();
    await store.settle(await lease(store, toBeFinished), { ...release, resumeAfterMs: 0 });
    expect(await ttlOf(toBeFinished), "to be finished by a worker").toBeUndefined();
  });

  it("is left out where the retention never ends", async () => {
    const store = open();
    const asked = request();
    const held = await lease(store, asked);
    await store.settle(held, complete(bodyOf(1), Number.POSITIVE_INFINITY));
    expect(await ttlOf(asked)).toBeUndefined();
    expect((await store.reserve(again(asked))).kind).toBe("replay");
  });

  it("is taken away from what is kept for audit", async () => {
    const store = open();
    const asked = request();
    await store.settle(await lease(store, asked), complete(bodyOf(1), 10));
    await clock.advance(20);
    await store.reap({ limit: 1_000, expiry: "soft" });
    expect((await store.read(asked)).record?.state).toBe("expired");
    expect(await ttlOf(asked)).toBeUndefined();
  });
});

describe("keys and scopes", () => {
  it("are told apart, whatever characters they hold", async () => {
    const store = open();
    const names = [
      "",
      " ",
      "a",
      "A",
      "á",
      "a\u0301",
      "\0",
      "a\0",
      "#",
      "=a",
      "1:a",
      "record#",
      "🙂",
      "\u{10ffff}",
    ];
    for (const scope of names) {
      for (const key of names) {
        expect((await store.reserve(request({ scope: `odd${scope}`, key }))).kind, `${scope} ${key}`).toBe(
          "execute",
        );
      }
    }
  });

  it("may be longer than a partition key of DynamoDB, and are still told apart", async () => {
    const store = open();
    const long = "ü".repeat(3_000);
    const asked = request({ scope: long, key: `${long}1` });
    await store.settle(await lease(store, asked), complete(bodyOf(1)));
    expect((await store.reserve(again(asked))).kind).toBe("replay");
    expect((await store.reserve(again(asked, { key: `${long}2` }))).kind).toBe("execute");
    expect((await store.read(asked)).record?.scope).toBe(long);
  });

  it("that are not Unicode are refused: DynamoDB would take two of them for one", async () => {
    const store = open();
    await expect(store.reserve(request({ key: "\ud800" }))).rejects.toThrow(/Unicode/);
    await expect(store.read({ scope: "\udc00", key: "k" })).rejects.toThrow(StoreError);
  });
});

describe("the table", () => {
  it("is made once, however often and by however many it is asked for", async () => {
    const table = `${place.table}-again`;
    await Promise.all([1, 2, 3].map(() => createTable(place.client, { table })));
    await createTable(place.client, { table });
    expect((await dynamodbStore(place.client, { table }).reserve(request())).kind).toBe("execute");
  });

  it("of somebody else is refused", async () => {
    const table = `${place.table}-rides`;
    await expect(createTable(place.client, { table })).rejects.toThrow(ConfigError);
  });

  it("that is not there is an error that says what to do", async () => {
    const store = dynamodbStore(place.client, { table: "nowhere" });
    await expect(store.reserve(request())).rejects.toThrow(/createTable/);
    await expect(
      store.sweep({ limit: 1, unclaimed: { kind: "omitted", status: 408, bodyBytes: 0 } }),
    ).rejects.toThrow(StoreError);
  });

  it("is described by data, with nothing that only this process knows", () => {
    const definition = tableDefinition("latchkey");
    expect(JSON.parse(JSON.stringify(definition))).toEqual(definition);
    expect(definition.TableName).toBe("latchkey");
  });
});

it("shows an outcome that an operator has to settle to those who count, and to no worker", async () => {
  const store = open();
  const asked = request({ scope: "index" });
  const held = await lease(store, asked);
  await store.settle(held, suspend);
  await store.resolve(asked, held.fence, { kind: "escalate", reason: "nobody knows" }, "reconciler");
  const { client, table } = place;
  const { Items = [] } = await client.send(new ScanCommand({ TableName: table, IndexName: "due" }));
  const own = Items.filter(({ pk }) => pk?.S === `record#=${asked.key.length}:${asked.key}index`);
  expect(own.map(({ job }) => job?.S)).toEqual([expect.stringMatching(/^escalated#\d+$/)]);
  const due = await store.claimUnknown({ limit: 1_000, backoff: { baseMs: 1, capMs: 1 } });
  expect(due.map(({ key }) => key)).not.toContain(asked.key);
});

it("refuses options that cannot be meant", () => {
  const wrong: readonly unknown[] = [
    {},
    { table: "" },
    { table: "t!" },
    { table: "latchkey", clockSkewMs: -1 },
    { table: "latchkey", clockSkewMs: Number.NaN },
    { table: "latchkey", largeBodies: "drop" },
    { table: "latchkey", partBytes: 0 },
    { table: "latchkey", partBytes: 400 * 1024 },
  ];
  for (const options of wrong) {
    expect(
      () => dynamodbStore(place.client, options as DynamoDbStoreOptions),
      JSON.stringify(options),
    ).toThrow(ConfigError);
  }
});
