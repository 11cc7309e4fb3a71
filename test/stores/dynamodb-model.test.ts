import { CreateTableCommand, DeleteTableCommand } from "@aws-sdk/client-dynamodb";
import { it } from "vitest";
import { dynamodbStore, tableDefinition } from "../../src/stores/dynamodb/store.ts";
import { dynamoDbClient } from "../support/dynamodb-server.ts";
import { useDynamoDb } from "./dynamodb-support.ts";
import { assertAnswersAsMemoryDoes } from "./store-model.ts";

const place = useDynamoDb();

it("answers any sequence of calls as the memory store does", async () => {
  // One connection, because of those who come at once the first comes first in the model.
  const client = dynamoDbClient(place.url, { requestHandler: { httpAgent: { maxSockets: 1 } } });
  let runs = 0;
  await assertAnswersAsMemoryDoes(
    async (clock) => {
      runs += 1;
      const table = `${place.table}-${runs}`;
      // Without createTable, and so without DynamoDB's own deletions: they go by the real time, and this clock does not.
      await client.send(new CreateTableCommand(tableDefinition(table)));
      // Some bodies are split, and some are not.
      const store = dynamodbStore(client, { table, clock, clockSkewMs: 0, partBytes: 4 });
      return Object.assign(store, {
        close: async () => void (await client.send(new DeleteTableCommand({ TableName: table }))),
      });
    },
    { numRuns: 25 },
  );
  client.destroy();
}, 90_000);
