import type { CancellationReason, TransactWriteItem } from "@aws-sdk/client-dynamodb";
import { LatchkeyError, StoreError, StoreRefusedError } from "../../core/errors.ts";

/**
 * One of the items that an atomic phase handed over was refused, and so nothing of the phase was written. The lease is
 * still held: a handler may catch this and try another phase, or answer.
 */
export class DynamoWriteRefusedError extends LatchkeyError {
  /** Which of the phase's writes, in the order in which they were handed over; undefined if DynamoDB did not say. */
  readonly index: number | undefined;
  readonly write: TransactWriteItem | undefined;
  /** DynamoDB's own word for it, such as `ConditionalCheckFailed`. */
  readonly reason: string;
  /** The item as it was, if the write asked for it with `ReturnValuesOnConditionCheckFailure`. */
  readonly item: CancellationReason["Item"];

  constructor(refusal: {
    readonly index?: number;
    readonly write?: TransactWriteItem | undefined;
    readonly reason: string;
    readonly message: string | undefined;
    readonly item?: CancellationReason["Item"];
    readonly cause?: unknown;
  }) {
    const { index, write, reason, message, item, cause } = refusal;
    const which = index === undefined ? "the writes" : `write ${index + 1}${tableOf(write)}`;
    super(
      "write-refused",
      `DynamoDB refused ${which} of an atomic phase, and nothing was written: ${message ?? reason}`,
      {
        cause,
      },
    );
    this.index = index;
    this.write = write;
    this.reason = reason;
    this.item = item;
  }
}

function tableOf(write: TransactWriteItem | undefined): string {
  const [operation] = Object.values(write ?? {}) as { readonly TableName?: string }[];
  return operation?.TableName === undefined ? "" : ` (to ${operation.TableName})`;
}

/** What went wrong between here and DynamoDB, said in a way that tells what to do. */
export function storeError(cause: unknown, table: string): StoreError {
  if (cause instanceof StoreError) return cause;
  const { name, message } = cause as { name?: unknown; message?: unknown };
  const said = `${name ?? "error"}: ${message || cause}`;
  if (name === "ResourceNotFoundException") {
    return new StoreError(
      `the table "${table}" is not in this account and region, or has no index "due": run createTable(client, { table }) ` +
        "from latchkey/dynamodb first",
      { cause },
    );
  }
  if (isTooLarge(cause)) {
    return new StoreRefusedError(
      "DynamoDB keeps at most 400 KB in one item, and the record of this request would be larger: keep less of the " +
        "request (requestBytesMax), of the results of its phases, or of its response (responseBytesMax)",
      { cause },
    );
  }
  if (throttled.has(String(name))) {
    return new StoreError(
      `DynamoDB does not keep up with what the table "${table}" is asked for (${said}): give it more capacity`,
      { cause },
    );
  }
  return new StoreError(`DynamoDB did not do what it was asked to (${said})`, { cause });
}

export function isTooLarge(error: unknown): boolean {
  const { name, message } = error as { name?: unknown; message?: unknown };
  return name === "ValidationException" && /item size.*exceeded/i.test(String(message));
}

const throttled: ReadonlySet<string> = new Set([
  "ProvisionedThroughputExceededException",
  "RequestLimitExceeded",
  "ThrottlingException",
]);
