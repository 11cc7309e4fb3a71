import type { DynamoDBClient, ScanCommandOutput } from "@aws-sdk/client-dynamodb";
import { describe, expect, it } from "vitest";
import { StoreRefusedError } from "../../src/core/errors.ts";
import type { RecordState } from "../../src/core/record.ts";
import type { Store } from "../../src/core/store.ts";
import { createTable, type DynamoWrites, dynamodbStore } from "../../src/stores/dynamodb/store.ts";
import { accepting, complete, created, lease, suspend } from "../../src/testing/contract/requests.ts";
import { request } from "../support/reserve-request.ts";
import { useDynamoDb } from "./dynamodb-support.ts";
import { listAll, namesOf } from "./listing-support.ts";

const place = useDynamoDb();
let tables = 0;

interface Asked {
  readonly command: string;
  readonly output: Partial<ScanCommandOutput>;
}

/** A store on a table of its own, and what it asks for. */
async function open(): Promise<{ store: Store<DynamoWrites>; asked: Asked[] }> {
  tables += 1;
  const table = `${place.table}-${tables}`;
  await createTable(place.client, { table });
  const asked: Asked[] = [];
  const client = new Proxy(place.client, {
    get(target, name) {
      if (name !== "send") return Reflect.get(target, name, target) as unknown;
      return async (...args: Parameters<DynamoDBClient["send"]>) => {
        const output = (await target.send(...args)) as unknown as Partial<ScanCommandOutput>;
        asked.push({ command: args[0].constructor.name, output });
        return output;
      };
    },
  });
  return { store: dynamodbStore(client, { table }), asked };
}

async function reserveMany(store: Store<DynamoWrites>, count: number, scope = "acme") {
  const requests = Array.from({ length: count }, () => request({ scope }));
  for (let from = 0; from < count; from += 50) {
    await Promise.all(requests.slice(from, from + 50).map((each) => store.reserve(each)));
  }
  return requests;
}

const cursorOf = (parts: unknown) => Buffer.from(JSON.stringify(parts)).toString("base64url");
const partsOf = (cursor = "") => JSON.parse(Buffer.from(cursor, "base64url").toString()) as unknown[];

describe("a list of records in DynamoDB", () => {
  it("shows a thousand records once each, from the table and from the index", async () => {
    const { store } = await open();
    const requests = await reserveMany(store, 1_000);
    const limit = 190;
    expect(namesOf(await listAll(store, { limit }))).toEqual(namesOf(requests));
    const running = await listAll(store, { limit, state: "in_progress" });
    expect(namesOf(running)).toEqual(namesOf(requests));
  }, 60_000);

  it("brings no body with it", async () => {
    const { store, asked } = await open();
    const large = { ...created, body: new Uint8Array(50_000) };
    for (let nth = 0; nth < 3; nth += 1) {
      await store.settle(await lease(store, request({ scope: "acme" })), complete(large));
    }
    asked.length = 0;
    expect(await listAll(store, { limit: 2 })).toHaveLength(3);
    expect(asked.every(({ output }) => JSON.stringify(output.Items).length < 2_000)).toBe(true);
  });

  it("of what waits for somebody is found without going through the table", async () => {
    const { store, asked } = await open();
    for (const each of await reserveMany(store, 20)) {
      const { record } = await store.read(each);
      if (record?.state === "in_progress") await store.settle({ ...each, ...record }, complete());
    }
    const doubtful = [request({ scope: "acme" }), request({ scope: "acme" }), request({ scope: "other" })];
    for (const each of doubtful) await store.settle(await lease(store, each), suspend);
    const [escalated] = doubtful as [(typeof doubtful)[0]];
    await store.resolve(escalated, 1, { kind: "escalate", reason: "nobody could tell" }, "ada");
    const pending = accepting({ scope: "acme" });
    await store.reserve(pending);
    asked.length = 0;
    const found = async (state: RecordState, tenantScope?: string) =>
      namesOf(await listAll(store, { limit: 1, state, tenantScope }));
    expect(await found("unknown")).toEqual(namesOf(doubtful));
    expect(await found("unknown", "other")).toEqual(namesOf(doubtful.slice(2)));
    expect(await found("pending")).toEqual(namesOf([pending]));
    expect(await found("expired")).toEqual([]);
    expect(asked.filter(({ command }) => command === "ScanCommand")).toEqual([]);
    expect(await found("completed")).toHaveLength(20);
  }, 20_000);

  it("of a name that the index has only a digest of is told by the record", async () => {
    const { store } = await open();
    const long = request({ scope: `acme POST /${"x".repeat(2_000)}` });
    await store.reserve(long);
    const listing = (tenantScope: string) => listAll(store, { limit: 10, tenantScope, state: "in_progress" });
    expect(namesOf(await listing("acme"))).toEqual(namesOf([long]));
    expect(await listing("other")).toEqual([]);
  });

  it("refuses a cursor that no page has named, and one of another list", async () => {
    const { store } = await open();
    await reserveMany(store, 5);
    const ofTable = (await store.list({ limit: 1 })).next;
    const ofIndex = (await store.list({ limit: 1, state: "in_progress" })).next;
    const [nth, dueAt, pk, sk] = partsOf(ofIndex);
    const cursors = [
      "",
      "nowhere",
      cursorOf({}),
      cursorOf([]),
      cursorOf([pk]),
      cursorOf([pk, ""]),
      cursorOf([pk, { S: sk }]),
      cursorOf(["x".repeat(3_000), sk]),
      ofIndex,
    ];
    for (const after of cursors) {
      await expect(store.list({ limit: 1, after }), after).rejects.toThrow(StoreRefusedError);
    }
    const ofState = { limit: 1, state: "in_progress" } as const;
    const cursorsOfIndex = [
      "nowhere",
      ofTable,
      cursorOf([-1, dueAt, pk, sk]),
      cursorOf([0.5, dueAt, pk, sk]),
      cursorOf([nth, String(dueAt), pk, sk]),
      cursorOf([nth, dueAt, pk]),
    ];
    for (const after of cursorsOfIndex) {
      await expect(store.list({ ...ofState, after }), after).rejects.toThrow(StoreRefusedError);
    }
    // What only looks like a place is one, and shows what comes after it.
    const made = await store.list({ limit: 10, after: cursorOf(["record#=made up", "record"]) });
    expect(made.records.length).toBeLessThanOrEqual(5);
    await store.list({ ...ofState, after: cursorOf([nth, 0, "record#=made up", "record"]) });
    expect((await store.list({ ...ofState, after: cursorOf([99, dueAt, pk, sk]) })).records).toEqual([]);
    expect(await listAll(store, { limit: 2 })).toHaveLength(5);
  });
});
