import type { DynamoDBClient } from "@aws-sdk/client-dynamodb";
import type { Store } from "../../core/store.ts";
import { DynamoDbStore, type DynamoDbStoreOptions } from "./dynamodb-store.ts";
import type { DynamoWrites } from "./writes.ts";

export type { DynamoDbStoreOptions } from "./dynamodb-store.ts";
export { DynamoWriteRefusedError } from "./errors.ts";
export { createTable, tableDefinition, ttlAttribute } from "./table-definition.ts";
export type { DynamoWrites } from "./writes.ts";

/**
 * Records in one DynamoDB table, for any number of processes on any number of machines. Make the table first, with
 * {@link createTable} or from {@link tableDefinition}. The client is yours, and stays open when the store is closed.
 *
 * An atomic phase gets no transaction to read and write in, because DynamoDB has none: it gets a {@link DynamoWrites} to
 * hand over items, of any tables of the account and region, which are then written together with the phase, or not at
 * all. What the phase depends on is said as conditions.
 *
 * DynamoDB has no clock to ask. Leases are kept by the clocks of the processes, which may differ by `clockSkewMs`; where
 * they differ by more, a lease may be taken over too early, and then the fence makes sure that only one outcome counts.
 *
 * @example
 * ```ts
 * const client = new DynamoDBClient({});
 * await createTable(client, { table: "latchkey" });
 * const latchkey = createLatchkey({ store: dynamodbStore(client, { table: "latchkey" }), tenant: "single" });
 * ```
 */
export function dynamodbStore(client: DynamoDBClient, options: DynamoDbStoreOptions): Store<DynamoWrites> {
  return new DynamoDbStore(client, options);
}
