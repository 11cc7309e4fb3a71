import { describe, it } from "vitest";
import { type DynamoDbStoreOptions, dynamodbStore } from "../../src/stores/dynamodb/store.ts";
import { manualClock, runStoreContract } from "../../src/testing/index.ts";
import { business, useDynamoDb } from "./dynamodb-support.ts";

const place = useDynamoDb();

/** One for all cases: they share a table, and its audit trail is in the order of the time. */
const clock = manualClock();

const lacks = {
  push: "DynamoDB tells nobody that something changed, but for streams, which somebody has to read",
  "bust news": "DynamoDB tells nobody that something changed",
  "outbox push": "DynamoDB tells nobody that something changed",
};

const variants: Readonly<Record<string, Omit<DynamoDbStoreOptions, "table">>> = {
  "with every body in its record": { largeBodies: "refuse" },
  "with bodies split into parts of three bytes": { partBytes: 3 },
};

for (const [how, options] of Object.entries(variants)) {
  describe(`dynamodb store ${how}`, () => {
    runStoreContract({
      it,
      lacks,
      async open() {
        const { client, table } = place;
        return {
          store: dynamodbStore(client, { table, clock: clock.now, clockSkewMs: 0, ...options }),
          passTime: clock.advance,
          business: business(client, table),
          close: async () => {},
        };
      },
    });
  });
}
