import { randomUUID } from "node:crypto";
import type { CancellationReason, TransactWriteItem } from "@aws-sdk/client-dynamodb";
import { PhaseError, StoreError } from "../../core/errors.ts";
import { encodeResponse } from "../../core/response.ts";
import type { Lease, PhaseCommit, TransactAnswer } from "../../core/store.ts";
import { moment } from "../record-row.ts";
import type { Context } from "./context.ts";
import { enqueuing } from "./enqueue.ts";
import { DynamoWriteRefusedError } from "./errors.ts";
import { recordKey } from "./keys.ts";
import { forgetUnreferred, held, isHeldBy, phaseChanges } from "./leases.ts";
import { type BodyParts, elsewhere, type ItemEntry, itemOf, responseAttributes } from "./record-item.ts";
import { attemptsMax, pause } from "./table.ts";
import { bytesOf, contentBytesMax, itemBytesMax } from "./values.ts";
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
  if (entry === undefined || !isHeldBy(lease, entry)) return undefined;
  const now = context.now();
  const { response } = phase;
  const expiresAt = response === undefined ? entry.record.expiresAt : moment(now + response.retentionMs);
  const room = itemBytesMax - bytesAfter(entry, phase, elsewhere);
  const parts = response && (await bodies.keep(response.response, { expiresAt, room }));
  assertRecordFits(entry, phase, parts);
  for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
    const version = randomUUID();
    const changes = phaseChanges(lease, phase, { version, now, parts });
    const update = { Update: table.updateInput(recordKey(lease), changes, held(lease)) };
    const room = itemsMax - 1 - business.length;
    const messages = await enqueuing(table, phase.messages, { now, room });
    const writes = [update, ...business, ...messages];
    assertFits(writes, business.length);
    const reasons = await table.transact(writes, version).catch((error: unknown) => {
      throw explained(error, business);
    });
    if (reasons === undefined) return expiresAt;
    const [own, ...others] = reasons;
    if (own?.Code === failedCondition) {
      // The client sends again what it got no answer to, and then meets what it has written itself.
      if (own.Item?.version?.S === version) return expiresAt;
      await forgetUnreferred(table, parts, own.Item);
      return undefined;
    }
    const refused =
      refusalOfBusiness(others, business) ?? refusalOfOwn([own, ...others.slice(business.length)]);
    if (refused !== undefined) throw refused;
    await pause(attempt);
  }
  throw new StoreError(
    `DynamoDB was busy with items of this phase during each of ${attemptsMax} attempts to write it, and nothing was ` +
      "written: others write the same items, or enqueue into the same lane",
  );
}

/** What DynamoDB found wrong with a business write, if that is what it was. */
function refusalOfBusiness(
  reasons: readonly CancellationReason[],
  business: readonly TransactWriteItem[],
): DynamoWriteRefusedError | undefined {
  const index = business.findIndex((_, nth) => !passing.has(reasons[nth]?.Code ?? "None"));
  const reason = reasons[index];
  if (reason?.Code === undefined) return undefined;
  const { Code, Message, Item } = reason;
  return new DynamoWriteRefusedError({
    index,
    write: business[index],
    reason: Code,
    message: Message,
    item: Item,
  });
}

/** What is not worth another try. The condition of a counter is: others have enqueued, and the next number is free. */
function refusalOfOwn(reasons: readonly (CancellationReason | undefined)[]): StoreError | undefined {
  const own = reasons.find((reason) => {
    const code = reason?.Code ?? "None";
    return code !== failedCondition && !passing.has(code);
  });
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

/** A transaction that DynamoDB did not even begin: the record was read a moment ago, so what is wrong is the business'. */
function explained(error: unknown, business: readonly TransactWriteItem[]): unknown {
  const { cause } = error as { cause?: { name?: string; message?: string } };
  const reason = cause?.name;
  const isBusiness = reason === "ValidationException" || reason === "ResourceNotFoundException";
  if (!isBusiness || business.length === 0) return error;
  return new DynamoWriteRefusedError({ reason, message: cause?.message, cause });
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

/** Results that are too large today are too large in every attempt: that is the phase's fault and not the store's. */
function assertRecordFits(entry: ItemEntry, phase: PhaseCommit, parts: BodyParts | undefined): void {
  const size = bytesAfter(entry, phase, parts);
  if (size <= (phase.response === undefined ? contentBytesMax : itemBytesMax)) return;
  throw new PhaseError(
    `the results of the phases, with the request or the response that is kept, have ${size} bytes, and do not fit into ` +
      "one item of DynamoDB (400 KB): return less from each phase",
  );
}

/** A record that is completed has no request any more, and nothing is ever added to it. */
function bytesAfter(
  entry: ItemEntry,
  { progress, response }: PhaseCommit,
  parts: BodyParts | undefined,
): number {
  const record = { ...entry.record, progress };
  if (response === undefined) return bytesOf(itemOf(record, entry.version, entry));
  const item = itemOf(record, entry.version, { ...entry, request: undefined });
  return bytesOf({ ...item, ...responseAttributes(encodeResponse(response.response), parts) });
}

/** DynamoDB's own limits. */
const itemsMax = 100;
const bytesMax = 4 * 1024 * 1024;
