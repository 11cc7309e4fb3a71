import { type AuditEntry, type AuditQuery, auditActors, auditReasons } from "../../../core/audit.ts";
import { decideBust } from "../../../core/bust.ts";
import { StoreError } from "../../../core/errors.ts";
import type { RecordId, UnknownRecord } from "../../../core/record.ts";
import type { StoredResponse } from "../../../core/response.ts";
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
} from "../../../core/store.ts";
import {
  abandoned,
  backoffMs,
  crashed,
  crashReason,
  expired,
  gaveUp,
  resolved,
  unclaimed,
} from "../../../core/transition.ts";
import { durationMs } from "../rows.ts";
import { type AuditRow, auditEntryOf } from "../upkeep.ts";
import { eachOf, type Records } from "./records.ts";
import type { Entry } from "./rows.ts";
import { type AuditCondition, audit as auditStatements, scans } from "./statements.ts";

/*
 * What workers do. Where Postgres locks what it finds and passes over what others have locked, here each record is
 * changed as it was found, or was somebody else's in the meantime and does not count.
 */

export async function sweep(
  records: Records,
  options: { readonly limit: number; readonly unclaimed: StoredResponse },
): Promise<SweepCounts> {
  const counts = { unknown: 0, retryable: 0, unclaimed: 0 };
  const by = auditActors.sweeper;
  const dead = await records.scan(scans.dead, options.limit);
  await eachOf(dead, async (found) => {
    if (found.record.state !== "in_progress") return;
    const next = crashed(found.record, found.now, { isRequestKept: found.request !== undefined });
    const isMoved = await records.move(found, next, { by, reason: crashReason });
    if (isMoved) counts[next.state === "unknown" ? "unknown" : "retryable"] += 1;
  });
  const late = await records.scan(scans.late, options.limit - dead.length);
  await eachOf(late, async (found) => {
    const { record, now } = found;
    if (record.state === "pending") {
      const next = unclaimed(record, options.unclaimed, now);
      if (await records.move(found, next, { by, reason: auditReasons.unclaimed })) counts.unclaimed += 1;
    } else if (record.state === "failed_retryable") {
      const isMoved = await records.move(found, abandoned(record, now), {
        by,
        reason: auditReasons.abandoned,
      });
      if (isMoved) counts.unknown += 1;
    }
  });
  return counts;
}

export async function claimResumable(records: Records, options: ClaimOptions): Promise<ResumableClaim> {
  let givenUp = 0;
  const due = await records.scan(scans.resumable, options.limit);
  const claimed = await eachOf(due, async (found): Promise<Resumable[]> => {
    const { record, request, owner, now } = found;
    if (request === undefined) return [];
    if (record.state !== "pending" && record.state !== "failed_retryable") return [];
    const { claims, fence } = record;
    if (record.state === "failed_retryable" && Math.max(fence, claims) >= options.attemptsMax) {
      const why = { by: auditActors.completer, reason: auditReasons.gaveUp };
      if (await records.move(found, gaveUp(record, now), why)) givenUp += 1;
      return [];
    }
    const resumeAfter = now + durationMs(backoffMs(options.backoff, fence + claims));
    const next = { ...record, claims: claims + 1, resumeAfter };
    return (await records.change(found, next, { owner, request })) ? [{ record: next, request }] : [];
  });
  return { claimed: claimed.flat(), gaveUp: givenUp };
}

export async function claimUnknown(
  records: Records,
  options: Omit<ClaimOptions, "attemptsMax">,
): Promise<readonly UnknownRecord[]> {
  const due = await records.scan(scans.unknown, options.limit);
  const claimed = await eachOf(due, async (found): Promise<UnknownRecord[]> => {
    const { record, now } = found;
    if (record.state !== "unknown") return [];
    const { reconcileAttempts } = record;
    const reconcileAfter = now + durationMs(backoffMs(options.backoff, reconcileAttempts));
    const next = { ...record, reconcileAttempts: reconcileAttempts + 1, reconcileAfter };
    return (await records.change(found, next, found)) ? [next] : [];
  });
  return claimed.flat();
}

export async function resolve(
  records: Records,
  id: RecordId,
  fence: number,
  resolution: Resolution,
  by: string,
): Promise<ResolveAnswer> {
  const reason = resolution.kind === "complete" ? auditReasons.foundOut : resolution.reason;
  return untilUnchanged(records, id, async (found): Promise<ResolveAnswer | undefined> => {
    const record = found?.record;
    if (found === undefined || record?.state !== "unknown" || record.fence !== fence) {
      return { kind: "not-unknown", state: record?.state ?? "absent" };
    }
    const isRequestKept = found.request !== undefined;
    const next = resolved(record, bounded(resolution), found.now, { isRequestKept });
    const isMoved = await records.move(found, next, { by, reason });
    return isMoved ? { kind: "resolved", expiresAt: next.expiresAt } : undefined;
  });
}

export async function bust(
  records: Records,
  id: RecordId,
  { by, reason, attempt }: Bust,
): Promise<BustAnswer> {
  return untilUnchanged(records, id, async (found) => {
    const answer = decideBust(found?.record, attempt);
    if (answer.kind !== "busted" || found === undefined) return answer;
    const isMoved = await records.move(found, expired(found.record), { by, reason });
    return isMoved ? answer : undefined;
  });
}

/** Undefined from `act` means that the record was changed meanwhile, and is looked at again. */
async function untilUnchanged<T>(
  records: Records,
  id: RecordId,
  act: (found: Entry | undefined) => Promise<T | undefined>,
): Promise<T> {
  for (let round = 0; round < roundsMax; round += 1) {
    const answer = await act(await records.find(id));
    if (answer !== undefined) return answer;
  }
  throw new StoreError(`the record changed during each of ${roundsMax} attempts to change it`);
}

const roundsMax = 10;

export async function reap(
  records: Records,
  { limit, expiry }: { readonly limit: number; readonly expiry: Expiry },
): Promise<ReapCounts> {
  const over = await records.scan(scans.over, limit);
  if (expiry === "soft") {
    const kept = { owner: null, request: undefined };
    const marked = await eachOf(over, (found) => records.change(found, expired(found.record), kept));
    return { deleted: 0, expired: marked.filter(Boolean).length };
  }
  const kept = await records.scan(scans.kept, limit - over.length);
  const removed = await eachOf([...over, ...kept], ({ record, revision }) =>
    records.remove(record, revision),
  );
  return { deleted: removed.filter(Boolean).length, expired: 0 };
}

export async function audit(records: Records, query: AuditQuery): Promise<readonly AuditEntry[]> {
  const conditions = (["before", "scope", "key"] as const).filter(
    (name: AuditCondition) => query[name] !== undefined,
  );
  const asked = conditions.map((name) => query[name] ?? null);
  const rows = await records.all<AuditRow>(auditStatements.read(conditions), [query.limit, ...asked]);
  return rows.map(auditEntryOf);
}

/** What is meant to last for ever has an end all the same. */
function bounded(resolution: Resolution): Resolution {
  if (resolution.kind === "escalate") return resolution;
  return { ...resolution, retentionMs: durationMs(resolution.retentionMs) };
}
