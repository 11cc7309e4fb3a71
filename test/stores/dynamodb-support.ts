import {
  type AttributeValue,
  CreateTableCommand,
  type DynamoDBClient,
  GetItemCommand,
  ScanCommand,
  type ScanCommandOutput,
} from "@aws-sdk/client-dynamodb";
import { afterAll, beforeAll } from "vitest";
import { type RecordId, recordIdText } from "../../src/core/record.ts";
import { createTable, type DynamoWrites } from "../../src/stores/dynamodb/store.ts";
import type { Business } from "../../src/testing/contract/harness.ts";
import { dynamoDbClient, startDynamoDb } from "../support/dynamodb-server.ts";
import type { ServerProcess } from "../support/server-process.ts";

/** A server for one test file, with Latchkey's table and one of an application's own. */
export function useDynamoDb() {
  const place = { table: "latchkey-test", url: "", client: undefined as unknown as DynamoDBClient };
  let server: ServerProcess | undefined;
  beforeAll(async () => {
    server = await startDynamoDb();
    place.url = server.url;
    place.client = dynamoDbClient(server.url);
    // The server may be one that was there before, with the tables of earlier runs.
    place.table = `latchkey-${process.pid}-${Date.now()}`;
    await createTable(place.client, { table: place.table });
    await createRides(place.client, `${place.table}-rides`);
  }, 60_000);
  afterAll(async () => {
    place.client.destroy();
    await server?.stop();
  });
  return place;
}

export function ridesTable(table: string): string {
  return `${table}-rides`;
}

async function createRides(client: DynamoDBClient, table: string): Promise<void> {
  await client.send(
    new CreateTableCommand({
      TableName: table,
      BillingMode: "PAY_PER_REQUEST",
      KeySchema: [{ AttributeName: "id", KeyType: "HASH" }],
      AttributeDefinitions: [{ AttributeName: "id", AttributeType: "S" }],
    }),
  );
}

/** The table `rides` stands for an application's own. */
export function business(client: DynamoDBClient, table: string): Business<DynamoWrites> {
  return {
    insert: (tx, id) => tx.put({ TableName: ridesTable(table), Item: { id: { S: id } } }),
    async ids() {
      const ids: string[] = [];
      let start: Record<string, AttributeValue> | undefined;
      do {
        const scan = new ScanCommand({
          TableName: ridesTable(table),
          ConsistentRead: true,
          ExclusiveStartKey: start,
        });
        const page: ScanCommandOutput = await client.send(scan);
        ids.push(...(page.Items ?? []).map((item) => item.id?.S ?? ""));
        start = page.LastEvaluatedKey;
      } while (start !== undefined);
      return ids;
    },
  };
}

/** A record as it lies in the table. */
export async function itemOf(
  { client, table }: { readonly client: DynamoDBClient; readonly table: string },
  id: RecordId,
): Promise<Record<string, AttributeValue> | undefined> {
  const Key = { pk: { S: `record#=${recordIdText(id)}` }, sk: { S: "record" } };
  const { Item } = await client.send(new GetItemCommand({ TableName: table, Key, ConsistentRead: true }));
  return Item;
}
