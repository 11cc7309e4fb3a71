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
import { claimingResumable, claimingUnknown, type Entry, type Moved, sweeping } from "../moves.ts";
import type { Row } from "./driver.ts";
import type { Records } from "./records.ts";

/*
 * What workers ask for. A statement finds what is due, and moves.ts says what becomes of each record: the
 * database is in this process, so that a record more or less costs microseconds and no round trip.
 */

export function sweep(
  records: Records,
  options: { readonly limit: number; readonly unclaimed: StoredResponse },
  now: number,
): SweepCounts {
  const { findDeadExecutions, findUnclaimed } = records.statements;
  const counts = { unknown: 0, retryable: 0, unclaimed: 0 };
  // Both are looked for first: what one sweep has made retryable is not abandoned by the same one.
  const found = [...findDeadExecutions.all(now, options.limit), ...findUnclaimed.all(now, options.limit)];
  const swept = performAll(records, found.slice(0, options.limit), (entry) =>
    sweeping(entry, options.unclaimed, now),
  );
  for (const { answer } of swept) counts[answer] += 1;
  return counts;
}

export function claimResumable(records: Records, options: ClaimOptions, now: number): ResumableClaim {
  const claimed: Resumable[] = [];
  let givenUp = 0;
  const found = records.statements.findResumable.all(now, now, options.limit);
  for (const { answer, entry } of performAll(records, found, (each) =>
    claimingResumable(each, options, now),
  )) {
    if (answer === "gave up") givenUp += 1;
    else {
      const request = records.requestOf(entry);
      if (request !== undefined) claimed.push({ record: answer, request });
    }
  }
  return { claimed, gaveUp: givenUp };
}

export function claimUnknown(
  records: Records,
  options: Omit<ClaimOptions, "attemptsMax">,
  now: number,
): readonly UnknownRecord[] {
  const found = records.statements.findUnknown.all(now, options.limit);
  return performAll(records, found, (entry) => claimingUnknown(entry, options, now)).map(
    ({ answer }) => answer,
  );
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

/** What became of each record that was found, as far as something did. */
function performAll<Answer>(
  records: Records,
  found: readonly Row[],
  plan: (entry: Entry) => Moved<Answer | undefined>,
): readonly { readonly answer: Answer; readonly entry: Entry }[] {
  const performed: { answer: Answer; entry: Entry }[] = [];
  for (const row of found) {
    const id: RecordId = { scope: row.scope as string, key: row.key as string };
    records.perform(id, (entry) => {
      if (entry === undefined) return { answer: undefined };
      const moved = plan(entry);
      if (moved.answer !== undefined) performed.push({ answer: moved.answer, entry });
      return moved;
    });
  }
  return performed;
}
