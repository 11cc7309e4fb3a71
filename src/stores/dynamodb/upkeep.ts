import { auditActors, auditReasons } from "../../core/audit.ts";
import { decideBust } from "../../core/bust.ts";
import { type IdempotencyRecord, isSettled, type RecordId, type UnknownRecord } from "../../core/record.ts";
import type { StoredResponse } from "../../core/response.ts";
import type {
  Bust,
  BustAnswer,
  ClaimOptions,
  Expiry,
  ReapCounts,
  Resolution,
  ResolveAnswer,
  Resumable,
  ResumableClaim,
  SweepCounts,
} from "../../core/store.ts";
import { decodeRequest } from "../../core/stored-request.ts";
import {
  abandoned,
  backoffMs,
  crashed,
  crashReason,
  expired,
  gaveUp,
  resolved,
  unclaimed,
} from "../../core/transition.ts";
import { inParallel } from "./concurrency.ts";
import { type Context, forgiving } from "./context.ts";
import { findDue } from "./due.ts";
import { keyOf } from "./keys.ts";
import type { Entry } from "./record-item.ts";
import type { Change } from "./records.ts";
import type { Condition } from "./table.ts";
import { moment, number, text, textIn } from "./values.ts";

/*
 * What workers and operators do. The index says where to look, core/transition.ts what becomes of each record, and the
 * write is on condition that the record is still what was read.
 */

export async function sweep(
  context: Context,
  options: { readonly limit: number; readonly unclaimed: StoredResponse },
): Promise<SweepCounts> {
  const now = context.now();
  const jobs = [
    { job: "lease", until: now - context.clockSkewMs },
    { job: "unfinished", until: now, filter: isLate(now) },
  ] as const;
  const counts = { unknown: 0, retryable: 0, unclaimed: 0 };
  const ended = await changeDue(context, jobs, options.limit, (entry) =>
    swept(forgiving(entry.record, context.clockSkewMs), entry.request, options.unclaimed, now),
  );
  for (const end of ended) counts[end] += 1;
  return counts;
}

function swept(
  record: IdempotencyRecord,
  request: Entry["request"],
  response: StoredResponse,
  at: number,
): Change<keyof SweepCounts | undefined> {
  const by = auditActors.sweeper;
  if (record.state === "in_progress" && record.leaseUntil <= at) {
    const next = crashed(record, at, { isRequestKept: request !== undefined });
    const audit = { from: record, by, reason: crashReason, at };
    return {
      answer: next.state === "unknown" ? "unknown" : "retryable",
      write: { record: next, request, audit },
    };
  }
  if (record.state === "pending" && record.expiresAt <= at) {
    const audit = { from: record, by, reason: auditReasons.unclaimed, at };
    return { answer: "unclaimed", write: { record: unclaimed(record, response, at), request, audit } };
  }
  if (record.state !== "failed_retryable" || record.resumeAfter !== undefined) return notDue;
  if (record.progress.length === 0 || record.expiresAt > at) return notDue;
  const audit = { from: record, by, reason: auditReasons.abandoned, at };
  return { answer: "unknown", write: { record: abandoned(record, at), request, audit } };
}

export async function claimResumable(context: Context, options: ClaimOptions): Promise<ResumableClaim> {
  const now = context.now();
  const filter: Condition = (expression) => `NOT ${isLate(now)(expression)}`;
  const jobs = [{ job: "unfinished", until: now, filter }] as const;
  const answers = await changeDue(context, jobs, options.limit, (entry) => taken(entry, options, now));
  const claimed = answers.filter((answer) => answer !== "gave up");
  return { claimed, gaveUp: answers.length - claimed.length };
}

function taken(
  { record, request, lastOwner }: Entry,
  options: ClaimOptions,
  at: number,
): Change<Resumable | "gave up" | undefined> {
  if ((record.state !== "pending" && record.state !== "failed_retryable") || request === undefined)
    return notDue;
  if (record.resumeAfter === undefined || record.resumeAfter > at) return notDue;
  if (record.state === "pending" && record.expiresAt <= at) return notDue;
  const { claims, fence } = record;
  if (record.state === "failed_retryable" && Math.max(fence, claims) >= options.attemptsMax) {
    const audit = { from: record, by: auditActors.completer, reason: auditReasons.gaveUp, at };
    return { answer: "gave up", write: { record: gaveUp(record, at), request, audit } };
  }
  const resumeAfter = moment(at + backoffMs(options.backoff, fence + claims));
  const next = { ...record, claims: claims + 1, resumeAfter };
  return {
    answer: { record: next, request: decodeRequest(request) },
    write: { record: next, request, lastOwner },
  };
}

export function claimUnknown(
  context: Context,
  options: Omit<ClaimOptions, "attemptsMax">,
): Promise<readonly UnknownRecord[]> {
  const now = context.now();
  return changeDue<UnknownRecord>(context, [{ job: "reconcile", until: now }], options.limit, (entry) => {
    const { record, request, lastOwner } = entry;
    if (record.state !== "unknown" || record.escalatedAt !== undefined || record.reconcileAfter > now)
      return notDue;
    const { reconcileAttempts } = record;
    const next = {
      ...record,
      reconcileAttempts: reconcileAttempts + 1,
      reconcileAfter: moment(now + backoffMs(options.backoff, reconcileAttempts)),
    };
    return { answer: next, write: { record: next, request, lastOwner } };
  });
}

export function resolve(
  { records, bodies, now }: Context,
  said: {
    readonly id: RecordId;
    readonly fence: number;
    readonly resolution: Resolution;
    readonly by: string;
  },
): Promise<ResolveAnswer> {
  const { id, fence, resolution, by } = said;
  return records.change<ResolveAnswer>(id, async (entry) => {
    const record = entry?.record;
    if (record?.state !== "unknown" || record.fence !== fence) {
      return { answer: { kind: "not-unknown", state: record?.state ?? "absent" } };
    }
    const at = now();
    const request = entry?.request;
    const next = resolved(record, resolution, at, { isRequestKept: request !== undefined });
    const reason = resolution.kind === "complete" ? auditReasons.foundOut : resolution.reason;
    const parts = next.state === "completed" ? await bodies.keep(next.response, next.expiresAt) : undefined;
    return {
      answer: { kind: "resolved", expiresAt: moment(next.expiresAt) },
      write: { record: next, request, parts, audit: { from: record, by, reason, at } },
    };
  });
}

export function bust(
  { records, now }: Context,
  id: RecordId,
  { by, reason, attempt }: Bust,
): Promise<BustAnswer> {
  return records.change<BustAnswer>(id, (entry) => {
    const answer = decideBust(entry?.record, attempt);
    if (answer.kind !== "busted" || entry === undefined) return { answer };
    const { record: from } = entry;
    return { answer, write: { record: expired(from), audit: { from, by, reason, at: now() } } };
  });
}

export async function reap(
  context: Context,
  { limit, expiry }: { readonly limit: number; readonly expiry: Expiry },
): Promise<ReapCounts> {
  const now = context.now();
  if (expiry === "delete") return { deleted: await deleteDue(context, limit, now), expired: 0 };
  const marked = await changeDue(context, [{ job: "reap", until: now }], limit, ({ record }) => {
    if (!isSettled(record) || record.state === "expired" || record.expiresAt > now) return notDue;
    return { answer: true, write: { record: expired(record) } };
  });
  return { deleted: 0, expired: marked.length };
}

/** Only what is settled is in these two jobs, so that the record itself need not be read. */
async function deleteDue({ records: { table } }: Context, limit: number, now: number): Promise<number> {
  const jobs = (["reap", "gone"] as const).map((job) => ({ job, until: now }));
  const found = await findDue(table, jobs, limit);
  const outcomes = await inParallel(found, (item) =>
    table.delete(keyOf(item), (expression) => {
      const isInJob = expression.equal({ job: text(textIn(item, "job")) });
      return `${isInJob} AND ${expression.name("dueAt")} <= ${expression.value(number(now))}`;
    }),
  );
  return outcomes.filter(({ kind }) => kind === "written").length;
}

/** Changes up to `limit` records that are due, each on its own, and answers what became of those that still were. */
async function changeDue<Answer>(
  { records }: Context,
  jobs: Parameters<typeof findDue>[1],
  limit: number,
  decide: (entry: Entry) => Change<Answer | undefined>,
): Promise<readonly Answer[]> {
  const found = await findDue(records.table, jobs, limit);
  const answers = await inParallel(found, (item) =>
    records.changeAt<Answer | undefined>(keyOf(item), (entry) =>
      entry === undefined ? notDue : decide(entry),
    ),
  );
  return answers.filter((answer) => answer !== undefined);
}

/** The index was out of date, or somebody else came first. */
const notDue = { answer: undefined };

function isLate(now: number): Condition {
  return (expression) => `${expression.name("lateAt")} <= ${expression.value(number(now))}`;
}
