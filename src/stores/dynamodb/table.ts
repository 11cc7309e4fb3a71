import {
  BatchGetItemCommand,
  type BatchGetItemCommandOutput,
  type CancellationReason,
  DeleteItemCommand,
  type DynamoDBClient,
  GetItemCommand,
  PutItemCommand,
  QueryCommand,
  type QueryCommandInput,
  ScanCommand,
  type ScanCommandInput,
  type ScanCommandOutput,
  type TransactWriteItem,
  TransactWriteItemsCommand,
  type Update,
  UpdateItemCommand,
} from "@aws-sdk/client-dynamodb";
import { StoreError } from "../../core/errors.ts";
import { inParallel } from "./concurrency.ts";
import { storeError } from "./errors.ts";
import { type Changes, Expression } from "./expression.ts";
import { type ItemKey, keyItem } from "./keys.ts";
import type { Item } from "./values.ts";

/** What became of a conditional write. */
export type WriteOutcome =
  | {
      readonly kind: "written";
      /** What was deleted. */
      readonly old?: Item | undefined;
    }
  /** Its condition did not hold: this is the item as it is, if there is one. */
  | { readonly kind: "refused"; readonly item: Item | undefined }
  /** A transaction was about the same item at the same time, or there was no capacity: nothing was written. */
  | { readonly kind: "busy" };

export const written: WriteOutcome = { kind: "written" };

/** A condition, said with the placeholders of its request. */
export type Condition = (expression: Expression) => string;

/** The table, through the user's client. What DynamoDB itself refuses is an answer, anything else a StoreError. */
export class Table {
  readonly name: string;
  readonly #client: DynamoDBClient;

  constructor(client: DynamoDBClient, name: string) {
    this.#client = client;
    this.name = name;
  }

  async get(key: ItemKey): Promise<Item | undefined> {
    const input = { TableName: this.name, Key: keyItem(key), ConsistentRead: true };
    return this.#ask(async () => (await this.#client.send(new GetItemCommand(input))).Item);
  }

  /** What there is of many items, or only some attributes, in any order. Whoever asks for one twice gets it once. */
  async getAll(keys: readonly ItemKey[], attributes?: readonly string[]): Promise<readonly Item[]> {
    const unique = [...new Map(keys.map((key) => [`${key.sk} ${key.pk}`, key])).values()];
    const groups = chunksOf(unique, batchGetMax);
    return (await inParallel(groups, (group) => this.#getGroup(group, attributes))).flat();
  }

  async put(item: Item, condition: Condition): Promise<WriteOutcome> {
    const input = this.putInput(item, condition);
    return this.#write(() => this.#client.send(new PutItemCommand(input)));
  }

  async update(key: ItemKey, changes: Changes, condition: Condition): Promise<WriteOutcome> {
    const input = this.updateInput(key, changes, condition);
    return this.#write(() => this.#client.send(new UpdateItemCommand(input)));
  }

  async delete(key: ItemKey, condition: Condition): Promise<WriteOutcome> {
    const input = { ...this.deleteInput(key, condition), ReturnValues: "ALL_OLD" } as const;
    return this.#write(() => this.#client.send(new DeleteItemCommand(input)));
  }

  /**
   * All or nothing. Undefined if it was done; else why it was not, for each write. `token` makes it one and the same
   * transaction, however often the client sends it because no answer came.
   */
  async transact(
    writes: readonly TransactWriteItem[],
    token: string,
  ): Promise<readonly CancellationReason[] | undefined> {
    const input = { TransactItems: [...writes], ClientRequestToken: token };
    try {
      await this.#client.send(new TransactWriteItemsCommand(input));
      return undefined;
    } catch (error) {
      const { name, CancellationReasons } = error as {
        name?: string;
        CancellationReasons?: CancellationReason[];
      };
      if (name === "TransactionCanceledException" && CancellationReasons !== undefined)
        return CancellationReasons;
      throw storeError(error, this.name);
    }
  }

  /** Page after page, until whoever asks has enough. */
  async *query(input: Omit<QueryCommandInput, "TableName">): AsyncGenerator<readonly Item[]> {
    let start = input.ExclusiveStartKey;
    do {
      const command = new QueryCommand({ ...input, TableName: this.name, ExclusiveStartKey: start });
      const page = await this.#ask(() => this.#client.send(command));
      yield page.Items ?? [];
      start = page.LastEvaluatedKey;
    } while (start !== undefined);
  }

  /** One page of all items, in no order. */
  async scan(input: Omit<ScanCommandInput, "TableName">): Promise<ScanCommandOutput> {
    return this.#ask(() => this.#client.send(new ScanCommand({ ...input, TableName: this.name })));
  }

  putInput(item: Item, condition: Condition) {
    const expression = new Expression();
    return {
      TableName: this.name,
      Item: item,
      ConditionExpression: condition(expression),
      ...expression.placeholders,
      ReturnValuesOnConditionCheckFailure: "ALL_OLD",
    } as const;
  }

  updateInput(key: ItemKey, changes: Changes, condition: Condition) {
    const expression = new Expression();
    return {
      TableName: this.name,
      Key: keyItem(key),
      UpdateExpression: expression.changes(changes),
      ConditionExpression: condition(expression),
      ...expression.placeholders,
      ReturnValuesOnConditionCheckFailure: "ALL_OLD",
    } as const satisfies Update;
  }

  deleteInput(key: ItemKey, condition: Condition) {
    const expression = new Expression();
    return {
      TableName: this.name,
      Key: keyItem(key),
      ConditionExpression: condition(expression),
      ...expression.placeholders,
      ReturnValuesOnConditionCheckFailure: "ALL_OLD",
    } as const;
  }

  async #getGroup(
    keys: readonly ItemKey[],
    attributes: readonly string[] | undefined,
  ): Promise<readonly Item[]> {
    const items: Item[] = [];
    const projection = attributes === undefined ? {} : new Expression().projection(attributes);
    let wanted: Item[] | undefined = keys.map(keyItem);
    for (let attempt = 0; wanted !== undefined && wanted.length > 0; attempt += 1) {
      if (attempt === attemptsMax) {
        throw new StoreError(`DynamoDB left items of the table "${this.name}" unread: give it more capacity`);
      }
      if (attempt > 0) await pause(attempt);
      const command: BatchGetItemCommand = new BatchGetItemCommand({
        RequestItems: { [this.name]: { Keys: wanted, ConsistentRead: true, ...projection } },
      });
      const answer: BatchGetItemCommandOutput = await this.#ask(() => this.#client.send(command));
      items.push(...(answer.Responses?.[this.name] ?? []));
      wanted = answer.UnprocessedKeys?.[this.name]?.Keys;
    }
    return items;
  }

  async #write(send: () => Promise<{ Attributes?: Item | undefined }>): Promise<WriteOutcome> {
    try {
      const { Attributes: old } = await send();
      return old === undefined ? written : { kind: "written", old };
    } catch (error) {
      const { name, Item: item } = error as { name?: string; Item?: Item };
      if (name === "ConditionalCheckFailedException") return { kind: "refused", item };
      if (name === "TransactionConflictException") return { kind: "busy" };
      throw storeError(error, this.name);
    }
  }

  async #ask<T>(send: () => Promise<T>): Promise<T> {
    try {
      return await send();
    } catch (error) {
      throw storeError(error, this.name);
    }
  }
}

/** DynamoDB's own limit. */
const batchGetMax = 100;

/** How often something is tried that others came between. Two suffice almost always. */
export const attemptsMax = 12;

/** Longer each time, and of random length: those who met once are not to meet again. */
export function pause(attempt: number): Promise<void> {
  const ms = Math.random() * Math.min(pauseMsMax, 4 * 2 ** attempt);
  return new Promise((resolve) => setTimeout(resolve, ms));
}

const pauseMsMax = 500;

export function chunksOf<T>(items: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, nth) =>
    items.slice(nth * size, (nth + 1) * size),
  );
}
