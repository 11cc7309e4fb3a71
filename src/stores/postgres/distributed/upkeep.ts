import type { AuditEntry, AuditQuery } from "../../../core/audit.ts";
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
import { expired } from "../../../core/transition.ts";
import { busting, claimingResumable, claimingUnknown, resolving, sweeping } from "../../moves.ts";
import { durationMs } from "../rows.ts";
import { type AuditRow, auditEntryOf } from "../upkeep.ts";
import { eachOf, type Records } from "./records.ts";
import { requestOf } from "./rows.ts";
import { type AuditCondition, audit as auditStatements, scans } from "./statements.ts";

/*
 * What workers and operators do: stores/moves.ts says what becomes of each record. Where Postgres locks what it finds and
 * passes over what others have locked, here each record is changed as it was found, or was somebody else's in the meantime
 * and does not count.
 */

export async function sweep(
  records: Records,
  options: { readonly limit: number; readonly unclaimed: StoredResponse },
): Promise<SweepCounts> {
  const counts = { unknown: 0, retryable: 0, unclaimed: 0 };
  const dead = await records.scan(scans.dead, options.limit);
  const late = await records.scan(scans.late, options.limit - dead.length);
  const ended = await records.changeEach([...dead, ...late], (found) =>
    sweeping(found, options.unclaimed, found.now),
  );
  for (const end of ended) counts[end] += 1;
  return counts;
}

export async function claimResumable(records: Records, options: ClaimOptions): Promise<ResumableClaim> {
  const due = await records.scan(scans.resumable, options.limit);
  const answers = await records.changeEach<Resumable | "gave up">(due, (found) => {
    const request = requestOf(found);
    const { answer: record, ...change } = claimingResumable(found, options, found.now);
    if (record === "gave up") return { ...change, answer: record };
    if (record === undefined || request === undefined) return { answer: undefined };
    return { ...change, answer: { record, request } };
  });
  const claimed = answers.filter((answer) => answer !== "gave up");
  return { claimed, gaveUp: answers.length - claimed.length };
}

export async function claimUnknown(
  records: Records,
  options: Omit<ClaimOptions, "attemptsMax">,
): Promise<readonly UnknownRecord[]> {
  const due = await records.scan(scans.unknown, options.limit);
  return records.changeEach(due, (found) => claimingUnknown(found, options, found.now));
}

export function resolve(
  records: Records,
  id: RecordId,
  said: { readonly fence: number; readonly resolution: Resolution; readonly by: string },
): Promise<ResolveAnswer> {
  const bound = { ...said, resolution: bounded(said.resolution) };
  return records.change(id, (found, now) => resolving(found, bound, now));
}

export function bust(records: Records, id: RecordId, said: Bust): Promise<BustAnswer> {
  return records.change(id, (found, now) => busting(found, said, now));
}

export async function reap(
  records: Records,
  { limit, expiry }: { readonly limit: number; readonly expiry: Expiry },
): Promise<ReapCounts> {
  const over = await records.scan(scans.over, limit);
  if (expiry === "soft") {
    const marked = await records.changeEach(over, ({ record }) => ({
      answer: true,
      move: { to: expired(record), lastOwner: null },
    }));
    return { deleted: 0, expired: marked.length };
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
