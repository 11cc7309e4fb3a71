import { auditActors, auditReasons } from "../../core/audit.ts";
import type { RecordId, UnknownRecord } from "../../core/record.ts";
import type { StoredResponse } from "../../core/response.ts";
import type {
  ClaimOptions,
  Expiry,
  ReapCounts,
  Resumable,
  ResumableClaim,
  SweepCounts,
} from "../../core/store.ts";
import { abandoned, backoffMs, crashed, crashReason, gaveUp, unclaimed } from "../../core/transition.ts";
import { moment } from "../record-row.ts";
import type { Row } from "./driver.ts";
import type { Entry, Records } from "./records.ts";

/*
 * What workers ask for. A statement finds what is due, and core/transition.ts says what becomes of each record: the
 * database is in this process, so that a record more or less costs microseconds and no round trip.
 */

export function sweep(
  records: Records,
  options: { readonly limit: number; readonly unclaimed: StoredResponse },
  now: number,
): SweepCounts {
  const { findDeadExecutions, findUnclaimed } = records.statements;
  const counts = { unknown: 0, retryable: 0, unclaimed: 0 };
  const why = { by: auditActors.sweeper, at: now };
  let left = options.limit;
  // Both are looked for first: what one sweep has made retryable is not abandoned by the same one.
  const dead = findDeadExecutions.all(now, left);
  const unclaimedOnes = findUnclaimed.all(now, left);
  for (const entry of entriesOf(records, dead)) {
    if (entry.record.state !== "in_progress") continue;
    const next = crashed(entry.record, now, { isRequestKept: entry.requestHead !== null });
    records.move(entry, next, { ...why, reason: crashReason });
    counts[next.state === "unknown" ? "unknown" : "retryable"] += 1;
    left -= 1;
  }
  for (const entry of entriesOf(records, unclaimedOnes.slice(0, left))) {
    const { record } = entry;
    if (record.state === "pending") {
      records.move(entry, unclaimed(record, options.unclaimed, now), {
        ...why,
        reason: auditReasons.unclaimed,
      });
      counts.unclaimed += 1;
    } else if (record.state === "failed_retryable") {
      records.move(entry, abandoned(record, now), { ...why, reason: auditReasons.abandoned });
      counts.unknown += 1;
    }
  }
  return counts;
}

export function claimResumable(records: Records, options: ClaimOptions, now: number): ResumableClaim {
  const claimed: Resumable[] = [];
  let givenUp = 0;
  const found = records.statements.findResumable.all(now, now, options.limit);
  for (const entry of entriesOf(records, found)) {
    const { record } = entry;
    const request = records.requestOf(entry);
    if ((record.state !== "pending" && record.state !== "failed_retryable") || request === undefined)
      continue;
    const { claims, fence } = record;
    if (record.state === "failed_retryable" && Math.max(fence, claims) >= options.attemptsMax) {
      const why = { by: auditActors.completer, reason: auditReasons.gaveUp, at: now };
      records.move(entry, gaveUp(record, now), why);
      givenUp += 1;
      continue;
    }
    const resumeAfter = moment(now + backoffMs(options.backoff, fence + claims));
    const hidden = { ...record, claims: claims + 1, resumeAfter };
    records.put(hidden, entry);
    claimed.push({ record: hidden, request });
  }
  return { claimed, gaveUp: givenUp };
}

export function claimUnknown(
  records: Records,
  options: Omit<ClaimOptions, "attemptsMax">,
  now: number,
): readonly UnknownRecord[] {
  const claimed: UnknownRecord[] = [];
  for (const entry of entriesOf(records, records.statements.findUnknown.all(now, options.limit))) {
    const { record } = entry;
    if (record.state !== "unknown") continue;
    const { reconcileAttempts } = record;
    const hidden = {
      ...record,
      reconcileAttempts: reconcileAttempts + 1,
      reconcileAfter: moment(now + backoffMs(options.backoff, reconcileAttempts)),
    };
    records.put(hidden, entry);
    claimed.push(hidden);
  }
  return claimed;
}

/** In SQL alone, for many records at once: nothing of them has to be read, least of all their bodies. */
export function reap(
  { statements }: Records,
  { limit, expiry }: { readonly limit: number; readonly expiry: Expiry },
  now: number,
): ReapCounts {
  const { markExpired, deleteSettled, deleteExpired } = statements;
  if (expiry === "soft") return { deleted: 0, expired: markExpired.run(now, limit) };
  const settled = deleteSettled.run(now, limit);
  return { deleted: settled + deleteExpired.run(now, limit - settled), expired: 0 };
}

function entriesOf(records: Records, rows: readonly Row[]): readonly Entry[] {
  return rows.flatMap((row) => {
    const id: RecordId = { scope: row.scope as string, key: row.key as string };
    return records.get(id) ?? [];
  });
}
