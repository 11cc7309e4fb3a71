import { randomUUID } from "node:crypto";
import { StoreError } from "../../core/errors.ts";
import { encodeProgress } from "../../core/phase.ts";
import { recordIdText } from "../../core/record.ts";
import { encodeResponse } from "../../core/response.ts";
import type {
  Advance,
  HeartbeatAnswer,
  Lease,
  PhaseCommit,
  RenewAnswer,
  SettleAnswer,
  Settlement,
} from "../../core/store.ts";
import { settling } from "../moves.ts";
import { succeededOr } from "../outcomes.ts";
import { moment } from "../record-row.ts";
import { forgetBody } from "./bodies.ts";
import { settledInParallel } from "./concurrency.ts";
import type { Context } from "./context.ts";
import { isTooLarge } from "./errors.ts";
import type { Changes } from "./expression.ts";
import { indexed, recordKey, shardCount, shardOf } from "./keys.ts";
import { type BodyParts, entryOf, type ItemEntry, partsOf, responseAttributes, ttl } from "./record-item.ts";
import { contentTooLarge } from "./records.ts";
import { attemptsMax, type Condition, pause, type Table, type WriteOutcome } from "./table.ts";
import { bytesOf, contentBytesMax, type Item, number, numberIn, text } from "./values.ts";

/*
 * What the holder of a lease does. It needs not read first: nobody else changes a record while its lease is held, so
 * that the lease itself is the condition.
 */

/** Only the holder of this lease. */
export function held({ fence, owner }: Lease): Condition {
  return (expression) =>
    expression.equal({ state: text("in_progress"), fence: number(fence), owner: text(owner) });
}

/** The same, of a record that was read. */
export function isHeldBy(lease: Lease, { record, lastOwner }: ItemEntry): boolean {
  return record.state === "in_progress" && record.fence === lease.fence && lastOwner === lease.owner;
}

export async function settle(context: Context, lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
  const now = context.now();
  if (settlement.kind !== "complete") {
    // It is audited, and what it leads to depends on what was done: so the record is read.
    return context.records.change(lease, (entry) => settling(entry, lease, settlement, now));
  }
  const expiresAt = moment(now + settlement.retentionMs);
  const complete = (parts: BodyParts | undefined) =>
    updateHeld(context, lease, completion(lease, settlement, { now, parts }));
  let parts = await context.bodies.keep(settlement.response, { expiresAt });
  const outcome = await complete(parts).catch(async (error: Error) => {
    if (parts !== undefined || !isTooLarge(error.cause)) throw error;
    // Only the record knows how much room its progress leaves, and there is too little for this body.
    parts = await context.bodies.keep(settlement.response, { expiresAt, room: 0 });
    if (parts === undefined) throw error;
    return complete(parts);
  });
  if (outcome.kind === "written") return { kind: "settled", expiresAt };
  await forgetUnreferred(context.records.table, parts, outcome.item);
  return settling(outcome.item && entryOf(outcome.item), lease, settlement, now).answer;
}

/** Parts that this record does not refer to were written for nothing; DynamoDB deletes only what has an end. */
export async function forgetUnreferred(
  table: Table,
  parts: BodyParts | undefined,
  item: Item | undefined,
): Promise<void> {
  if (parts === undefined || (item && partsOf(item)?.name === parts.name)) return;
  await forgetBody(table, parts);
}

/** What `settled` says of a completion in core/transition.ts, without reading the record first. */
function completion(
  lease: Lease,
  { response, retentionMs }: Extract<Settlement, { kind: "complete" }>,
  { now, parts }: { readonly now: number; readonly parts: BodyParts | undefined },
): Changes {
  const expiresAt = moment(now + retentionMs);
  return {
    set: {
      state: text("completed"),
      version: text(randomUUID()),
      completedAt: number(now),
      expiresAt: number(expiresAt),
      ...responseAttributes(encodeResponse(response), parts),
      ...indexed("reap", shardOf(recordIdText(lease), shardCount), expiresAt),
      ...ttl(expiresAt),
    },
    remove: ["leaseUntil", "after", "baseBytes", "requestHead", "requestBody"],
  };
}

/** DynamoDB has no statement for many conditions that may fail one by one, so each lease has a request of its own. */
export async function renew(
  context: Context,
  leases: readonly Lease[],
  leaseMs: number,
): Promise<readonly HeartbeatAnswer[]> {
  const outcomes = await settledInParallel(leases, async (lease): Promise<RenewAnswer> => {
    const leaseUntil = number(context.now() + leaseMs);
    const set = { leaseUntil, dueAt: leaseUntil, version: text(randomUUID()) };
    return (await updateHeld(context, lease, { set })).kind === "written" ? "held" : "lost";
  });
  return succeededOr(outcomes, "unknown");
}

export async function advance(context: Context, lease: Lease, step: Advance): Promise<RenewAnswer> {
  const changes = advancement(step, randomUUID());
  const size = bytesOf(changes.set ?? {});
  const isHeld = held(lease);
  const outcome = await updateHeld(context, lease, changes, (expression) => {
    const room = expression.value(number(contentBytesMax - size));
    return `${isHeld(expression)} AND ${expression.name("baseBytes")} <= ${room}`;
  });
  if (outcome.kind === "written") return "held";
  const { item } = outcome;
  if (item === undefined || !isHeldBy(lease, entryOf(item))) return "lost";
  throw contentTooLarge(numberIn(item, "baseBytes") + size);
}

function advancement({ progress, onCrash }: Advance, version: string): Changes {
  const encoded = encodeProgress(progress);
  const set: Item = { onCrash: text(onCrash), version: text(version) };
  return encoded === null ? { set, remove: ["progress"] } : { set: { ...set, progress: text(encoded) } };
}

/** What an atomic phase writes into the record. */
export function phaseChanges(
  lease: Lease,
  { response, ...step }: PhaseCommit,
  { version, now, parts }: { version: string; now: number; parts: BodyParts | undefined },
): Changes {
  const advanced = advancement(step, version);
  if (response === undefined) return advanced;
  const completed = completion(lease, response, { now, parts });
  return {
    set: { ...completed.set, ...advanced.set },
    remove: [...(completed.remove ?? []), ...(advanced.remove ?? [])],
  };
}

/** A transaction on the same record, such as one of this lease's own phases, is waited for. */
async function updateHeld(
  { records: { table } }: Context,
  lease: Lease,
  changes: Changes,
  condition = held(lease),
): Promise<Exclude<WriteOutcome, { kind: "busy" }>> {
  for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
    const outcome = await table.update(recordKey(lease), changes, condition);
    if (outcome.kind !== "busy") return outcome;
    await pause(attempt);
  }
  throw new StoreError(
    `DynamoDB was busy with the record during each of ${attemptsMax} attempts to change it`,
  );
}
