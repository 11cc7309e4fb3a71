import { describe, it } from "vitest";
import {
  type DynamoDbStoreOptions,
  type DynamoWrites,
  dynamodbStore,
} from "../../src/stores/dynamodb/store.ts";
import { manualClock, runStoreContract, type StoreHarness, storeContract } from "../../src/testing/index.ts";
import { business, useDynamoDb } from "./dynamodb-support.ts";

const place = useDynamoDb();

/**
 * One for all cases: they share a table, and its audit trail is in the order of the time. It begins now, because what is
 * long past by the real time is deleted by DynamoDB itself.
 */
const clock = manualClock({ startMs: Date.now() });

const lacks = {
  push: "DynamoDB tells nobody that something changed, but for streams, which somebody has to read",
  "bust news": "DynamoDB tells nobody that something changed",
  "bust generation": "DynamoDB tells nobody that something changed",
  "outbox push": "DynamoDB tells nobody that something changed",
};

function open(options: Omit<DynamoDbStoreOptions, "table">): StoreHarness<DynamoWrites> {
  const { client, table } = place;
  return {
    store: dynamodbStore(client, { table, clock: clock.now, clockSkewMs: 0, ...options }),
    passTime: clock.advance,
    business: business(client, table),
    close: async () => {},
  };
}

describe("dynamodb store", () => {
  runStoreContract({ it, lacks, open: async () => open({}) });
});

describe("dynamodb store with bodies split into parts of three bytes", () => {
  // The outbox has no bodies, and takes as long as everything else.
  const ofRecords = new Set(storeContract.filter(({ needs }) => needs === undefined).map(({ name }) => name));
  runStoreContract({
    it: (name, run) => ofRecords.has(name) && it(name, run),
    lacks,
    open: async () => open({ partBytes: 3 }),
  });
});
