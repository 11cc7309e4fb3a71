import { randomUUID } from "node:crypto";
import type { CancellationReason, TransactWriteItem } from "@aws-sdk/client-dynamodb";
import { type LatchkeyError, PhaseError, StoreError } from "../../core/errors.ts";
import type { Lease, PhaseCommit, TransactAnswer } from "../../core/store.ts";
import type { Context } from "./context.ts";
import { enqueuing } from "./enqueue.ts";
import { DynamoWriteRefusedError, storeError } from "./errors.ts";
import { recordKey } from "./keys.ts";
import { held, phaseChanges } from "./leases.ts";
import { attemptsMax, pause } from "./table.ts";
import { bytesOf, moment } from "./values.ts";
import { CollectedWrites, type DynamoWrites } from "./writes.ts";

/**
 * Lets `work` collect business writes, and then writes them together with what they mean for the record, in one
 * transaction and only if the lease is still held. Others who enqueue into the same lane may come between; then the same
 * writes are sent again with the lane's next numbers, and `work` is not run twice.
 */
export async function transact<T>(
  context: Context,
  lease: Lease,
  work: (tx: DynamoWrites) => T | Promise<T>,
  commit: (result: T) => PhaseCommit,
): Promise<TransactAnswer<T>> {
  const collected = new CollectedWrites();
  let result: T;
  try {
    result = await work(collected);
  } finally {
    collected.end();
  }
  const phase = commit(result);
  const expiresAt = await writeDown(context, lease, collected.items, phase);
  return expiresAt === undefined ? { kind: "lost" } : { kind: "committed", result, expiresAt };
}

/** Answers when the record expires; undefined if the lease is lost. */
async function writeDown(
  context: Context,
  lease: Lease,
  business: readonly TransactWriteItem[],
  phase: PhaseCommit,
): Promise<number | undefined> {
  const { records, bodies } = context;
  const { table } = records;
  const entry = await records.get(lease);
  if (
    entry?.record.state !== "in_progress" ||
    entry.record.fence !== lease.fence ||
    entry.lastOwner !== lease.owner
  )
    return undefined;
  const now = context.now();
  const { response } = phase;
  const expiresAt = response === undefined ? entry.record.expiresAt : moment(now + response.retentionMs);
  const parts = response && (await bodies.keep(response.response, expiresAt));
  for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
    const version = randomUUID();
    const changes = phaseChanges(lease, phase, { version, now, parts });
    const own = { Update: table.updateInput(recordKey(lease), changes, held(lease)) };
    const room = itemsMax - 1 - business.length;
    const messages = await enqueuing(table, phase.messages, { now, room });
    const writes = [own, ...business, ...messages];
    assertFits(writes, business.length);
    const reasons = await table.transact(writes, version).catch((error: unknown) => {
      throw explained(error, business, table.name);
    });
    if (reasons === undefined) return expiresAt;
    const [ownReason, ...others] = reasons;
    if (ownReason?.Code === failedCondition) {
      // The client sends again what it got no answer to, and then meets what it has written itself.
      return ownReason.Item?.version?.S === version ? expiresAt : undefined;
    }
    const refused = refusal(others, business);
    if (refused !== undefined) throw refused;
    await pause(attempt);
  }
  throw new StoreError(
    `DynamoDB was busy with items of this phase during each of ${attemptsMax} attempts to write it, and nothing was ` +
      "written: others write the same items, or enqueue into the same lane",
  );
}

/** What is not worth another try. The record's own condition, and that of a lane's counter, are not among them. */
function refusal(
  reasons: readonly CancellationReason[],
  business: readonly TransactWriteItem[],
): LatchkeyError | undefined {
  for (const [index, write] of business.entries()) {
    const reason = reasons[index];
    if (reason?.Code === undefined || passing.has(reason.Code)) continue;
    return new DynamoWriteRefusedError({
      index,
      write,
      reason: reason.Code,
      message: reason.Message,
      item: reason.Item,
    });
  }
  const own = reasons.slice(business.length).find(({ Code }) => Code !== undefined && !retried.has(Code));
  return (
    own && new StoreError(`DynamoDB refused a phase, and nothing was written (${own.Code}: ${own.Message})`)
  );
}

const failedCondition = "ConditionalCheckFailed";

/** Not the item's own fault: it was only in company, or another transaction or a lack of capacity came between. */
const passing: ReadonlySet<string> = new Set([
  "None",
  "TransactionConflict",
  "ThrottlingError",
  "ProvisionedThroughputExceeded",
  "RequestLimitExceeded",
]);

const retried: ReadonlySet<string> = new Set([...passing, failedCondition]);

/** A transaction that DynamoDB did not even begin: the record was read a moment ago, so what is wrong is the business'. */
function explained(error: unknown, business: readonly TransactWriteItem[], table: string): LatchkeyError {
  const { name, message } = error as { name?: string; message?: string };
  const isBusiness = name === "ValidationException" || name === "ResourceNotFoundException";
  if (!isBusiness || business.length === 0) return storeError(error, table);
  return new DynamoWriteRefusedError({ reason: name, message, cause: error });
}

function assertFits(writes: readonly TransactWriteItem[], business: number): void {
  if (writes.length > itemsMax) {
    throw new PhaseError(
      `an atomic phase on DynamoDB may write ${itemsMax} items, and this one wrote ${writes.length}: ${business} of its ` +
        "own, its record, and its messages; make it several phases",
    );
  }
  const size = writes.reduce(
    (sum, { Put, Update }) => sum + bytesOf(Put?.Item ?? Update?.ExpressionAttributeValues ?? {}),
    0,
  );
  if (size > bytesMax) {
    throw new PhaseError(
      `an atomic phase on DynamoDB may write 4 MB, and this one wrote ${size} bytes: make it several phases`,
    );
  }
}

/** DynamoDB's own limits. */
const itemsMax = 100;
const bytesMax = 4 * 1024 * 1024;
