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
import { decodeRequest } from "../../core/stored-request.ts";
import { claimingResumable, claimingUnknown, type Entry, type Moved, sweeping } from "../moves.ts";
import { batchesOf, changeInBatches } from "./batches.ts";
import type { Database, Row } from "./database.ts";
import { removeForgotten } from "./notes.ts";
import { entryOf, write } from "./records.ts";
import * as statements from "./statements.ts";

/*
 * What workers ask for. What is due is looked for without locking anything; then it is locked, as far as nobody else
 * works on it, and looked at again, because it may have changed meanwhile.
 */

export async function sweep(
  database: Database,
  options: { readonly limit: number; readonly unclaimed: StoredResponse },
): Promise<SweepCounts> {
  const counts = { unknown: 0, retryable: 0, unclaimed: 0 };
  const dead = await findDue(database, "lease", options.limit);
  const unclaimed = await findDue(database, "unclaimed", options.limit);
  const moved = await moveFound(database, [...dead, ...unclaimed].slice(0, options.limit), (entry, now) =>
    sweeping(entry, options.unclaimed, now),
  );
  for (const { answer } of moved) if (answer !== undefined) counts[answer] += 1;
  return counts;
}

export async function claimResumable(database: Database, options: ClaimOptions): Promise<ResumableClaim> {
  const found = await database.read(statements.findResumable(options.limit));
  const moved = await moveFound(database, found, (entry, now) => claimingResumable(entry, options, now));
  const claimed: Resumable[] = [];
  let gaveUp = 0;
  for (const { answer, row } of moved) {
    if (answer === "gave up") gaveUp += 1;
    else if (answer !== undefined) {
      const head = row.request_head as string;
      const body = (row.request_body as Uint8Array | null) ?? new Uint8Array();
      claimed.push({ record: answer, request: decodeRequest({ head, body }) });
    }
  }
  return { claimed, gaveUp };
}

export async function claimUnknown(
  database: Database,
  options: Omit<ClaimOptions, "attemptsMax">,
): Promise<readonly UnknownRecord[]> {
  const found = await findDue(database, "unknown", options.limit);
  const moved = await moveFound(database, found, (entry, now) => claimingUnknown(entry, options, now));
  return moved.flatMap(({ answer }) => answer ?? []);
}

export async function reap(
  database: Database,
  { limit, expiry }: { readonly limit: number; readonly expiry: Expiry },
): Promise<ReapCounts> {
  await removeForgotten(database, limit);
  const settled = await findDue(database, "settled", limit);
  if (expiry === "soft") {
    return { deleted: 0, expired: await changeInBatches(database, idsOf(settled), statements.markExpired) };
  }
  const expired = settled.length < limit ? await findDue(database, "expired", limit) : [];
  let deleted = 0;
  for (const [job, found] of [
    ["settled", settled],
    ["expired", expired.slice(0, limit - settled.length)],
  ] as const) {
    deleted += await changeInBatches(database, idsOf(found), (list) => statements.deleteDue(list, job));
  }
  return { deleted, expired: 0 };
}

function idsOf(found: readonly Row[]): Uint8Array[] {
  return found.map(({ id }) => id as Uint8Array);
}

async function findDue(database: Database, job: statements.Job, limit: number): Promise<readonly Row[]> {
  return database.read(statements.findDue(limit), [job]);
}

/** Locks what was found, and writes what `plan` makes of each; answers for each that was locked. */
async function moveFound<Answer>(
  database: Database,
  found: readonly Row[],
  plan: (entry: Entry, now: number) => Moved<Answer>,
): Promise<readonly { readonly answer: Answer; readonly row: Row }[]> {
  const all: { answer: Answer; row: Row }[] = [];
  for (const { list, values } of batchesOf(idsOf(found))) {
    const moved = await database.transaction(async (session) => {
      const batch: typeof all = [];
      for (const row of await session.rows(statements.lockFound(list), values)) {
        const id: RecordId = { scope: row.scope as string, key: row.record_key as string };
        const entry = entryOf(id, row);
        const { answer, move } = plan(entry, Number(row.clock));
        if (move !== undefined) await write(session, entry, move);
        batch.push({ answer, row });
      }
      return batch;
    });
    all.push(...moved);
  }
  return all;
}
