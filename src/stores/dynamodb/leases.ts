import { randomUUID } from "node:crypto";
import { StoreError } from "../../core/errors.ts";
import { encodeProgress } from "../../core/phase.ts";
import { recordIdText } from "../../core/record.ts";
import { encodeResponse } from "../../core/response.ts";
import type { Advance, Lease, PhaseCommit, RenewAnswer, SettleAnswer, Settlement } from "../../core/store.ts";
import { settled, settledStates } from "../../core/transition.ts";
import { inParallel } from "./concurrency.ts";
import type { Context } from "./context.ts";
import type { Changes } from "./expression.ts";
import { indexed, recordKey, shardCount, shardOf } from "./keys.ts";
import { type BodyParts, type Entry, entryOf, responseAttributes, ttl } from "./record-item.ts";
import { attemptsMax, type Condition, pause, type WriteOutcome } from "./table.ts";
import { type Item, moment, number, text } from "./values.ts";

/*
 * What the holder of a lease does. It needs not read first: nobody else changes a record while its lease is held, so
 * that the lease itself is the condition.
 */

/** Only the holder of this lease. */
export function held({ fence, owner }: Lease): Condition {
  return (expression) =>
    expression.equal({ state: text("in_progress"), fence: number(fence), owner: text(owner) });
}

export async function settle(context: Context, lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
  if (settlement.kind !== "complete") return settleOffPath(context, lease, settlement);
  const now = context.now();
  const expiresAt = moment(now + settlement.retentionMs);
  const parts = await context.bodies.keep(settlement.response, expiresAt);
  const outcome = await updateHeld(context, lease, completion(lease, settlement, { now, parts }));
  if (outcome.kind === "written") return { kind: "settled", expiresAt };
  return toldAgain(lease, settlement, outcome.item && entryOf(outcome.item));
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
    remove: ["leaseUntil", "after", "requestHead", "requestBody"],
  };
}

/** A release or a suspension is audited, and what it leads to depends on what was done: so the record is read. */
function settleOffPath(
  { records, now }: Context,
  lease: Lease,
  settlement: Exclude<Settlement, { kind: "complete" }>,
): Promise<SettleAnswer> {
  return records.change<SettleAnswer>(lease, (entry) => {
    const record = entry?.record;
    if (entry === undefined || !isOf(lease, entry) || record?.state !== "in_progress") {
      return { answer: toldAgain(lease, settlement, entry) };
    }
    const at = now();
    const next = settled(record, settlement, at);
    const audit = { from: record, by: lease.owner, reason: settlement.reason, at };
    return {
      answer: { kind: "settled", expiresAt: moment(next.expiresAt) },
      write: { record: next, lastOwner: lease.owner, request: entry.request, audit },
    };
  });
}

/** The same lease may say the same thing twice: its first word may have been heard, and the answer lost. */
function toldAgain(lease: Lease, settlement: Settlement, entry: Entry | undefined): SettleAnswer {
  if (entry === undefined || !isOf(lease, entry)) return { kind: "lost" };
  const { state, expiresAt } = entry.record;
  return state === settledStates[settlement.kind] ? { kind: "settled", expiresAt } : { kind: "lost" };
}

function isOf(lease: Lease, { record, lastOwner }: Entry): boolean {
  return record.fence === lease.fence && lastOwner === lease.owner;
}

/** DynamoDB has no statement for many conditions that may fail one by one, so each lease has a request of its own. */
export function renew(
  context: Context,
  leases: readonly Lease[],
  leaseMs: number,
): Promise<readonly RenewAnswer[]> {
  return inParallel(leases, async (lease) => {
    const leaseUntil = number(context.now() + leaseMs);
    const set = { leaseUntil, dueAt: leaseUntil, version: text(randomUUID()) };
    return (await updateHeld(context, lease, { set })).kind === "written" ? "held" : "lost";
  });
}

export async function advance(context: Context, lease: Lease, step: Advance): Promise<RenewAnswer> {
  const outcome = await updateHeld(context, lease, advancement(step, randomUUID()));
  return outcome.kind === "written" ? "held" : "lost";
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
): Promise<Exclude<WriteOutcome, { kind: "busy" }>> {
  for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
    const outcome = await table.update(recordKey(lease), changes, held(lease));
    if (outcome.kind !== "busy") return outcome;
    await pause(attempt);
  }
  throw new StoreError(
    `DynamoDB was busy with the record during each of ${attemptsMax} attempts to change it`,
  );
}
