import {
  CreateTableCommand,
  type CreateTableCommandInput,
  DescribeTableCommand,
  DescribeTimeToLiveCommand,
  type DynamoDBClient,
  UpdateTimeToLiveCommand,
  waitUntilTableExists,
} from "@aws-sdk/client-dynamodb";
import { ConfigError } from "../../core/errors.ts";
import { storeError } from "./errors.ts";

/** The sparse index by which workers find what is due. */
export const dueIndex = "due";

/** The attribute that says, in seconds since 1970, when DynamoDB may delete an item by itself. */
export const ttlAttribute = "ttl";

/** Latchkey's one table as data: what `createTable` creates, and what to write down in Terraform, CDK or CloudFormation. */
export function tableDefinition(table: string) {
  return {
    TableName: table,
    BillingMode: "PAY_PER_REQUEST",
    KeySchema: [
      { AttributeName: "pk", KeyType: "HASH" },
      { AttributeName: "sk", KeyType: "RANGE" },
    ],
    AttributeDefinitions: [
      { AttributeName: "pk", AttributeType: "S" },
      { AttributeName: "sk", AttributeType: "S" },
      { AttributeName: "job", AttributeType: "S" },
      { AttributeName: "dueAt", AttributeType: "N" },
    ],
    GlobalSecondaryIndexes: [
      {
        IndexName: dueIndex,
        KeySchema: [
          { AttributeName: "job", KeyType: "HASH" },
          { AttributeName: "dueAt", KeyType: "RANGE" },
        ],
        // Only what is needed to choose among what is due; everything else is read from the table, consistently.
        Projection: {
          ProjectionType: "INCLUDE",
          NonKeyAttributes: ["lateAt", "messages", "entry"],
        },
      },
    ],
  } satisfies CreateTableCommandInput;
}

/**
 * Creates Latchkey's table if it is not there, waits until it can be used, and lets DynamoDB delete what has expired. It
 * may be run as often as you like. The table is billed by request; change that as you need.
 *
 * @example
 * ```ts
 * await createTable(new DynamoDBClient({}), { table: "latchkey" });
 * ```
 */
export async function createTable(
  client: DynamoDBClient,
  { table }: { readonly table: string },
): Promise<void> {
  try {
    if (!(await hasTable(client, table))) await create(client, table);
    await waitUntilTableExists(
      { client, maxWaitTime: creationSecondsMax, minDelay: 1 },
      { TableName: table },
    );
    await enableTtl(client, table);
  } catch (error) {
    throw error instanceof ConfigError ? error : storeError(error, table);
  }
}

/** An index on an empty table is there within seconds, and may be later. */
const creationSecondsMax = 300;

async function hasTable(client: DynamoDBClient, table: string): Promise<boolean> {
  try {
    const { Table } = await client.send(new DescribeTableCommand({ TableName: table }));
    if (Table?.GlobalSecondaryIndexes?.some(({ IndexName }) => IndexName === dueIndex)) return true;
  } catch (error) {
    if ((error as { name?: unknown }).name === "ResourceNotFoundException") return false;
    throw error;
  }
  throw new ConfigError(
    `there is a table "${table}" that is not Latchkey's, because it has no index "${dueIndex}": choose another name`,
  );
}

async function create(client: DynamoDBClient, table: string): Promise<void> {
  try {
    await client.send(new CreateTableCommand(tableDefinition(table)));
  } catch (error) {
    // Another process was quicker.
    if ((error as { name?: unknown }).name !== "ResourceInUseException") throw error;
  }
}

async function enableTtl(client: DynamoDBClient, table: string): Promise<void> {
  const { TimeToLiveDescription } = await client.send(new DescribeTimeToLiveCommand({ TableName: table }));
  const status = TimeToLiveDescription?.TimeToLiveStatus;
  if (status === "ENABLED" || status === "ENABLING") return;
  const enable = new UpdateTimeToLiveCommand({
    TableName: table,
    TimeToLiveSpecification: { AttributeName: ttlAttribute, Enabled: true },
  });
  await client.send(enable).catch((error: unknown) => {
    // Another process was quicker.
    if (!/already enabled/i.test(String((error as { message?: unknown }).message))) throw error;
  });
}
