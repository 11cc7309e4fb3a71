import { isSettled, type RecordId, type UnknownRecord } from "../../core/record.ts";
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
  UnknownCounts,
} from "../../core/store.ts";
import { decodeRequest } from "../../core/stored-request.ts";
import { expired } from "../../core/transition.ts";
import { busting, claimingResumable, claimingUnknown, resolving, sweeping } from "../moves.ts";
import { succeeded } from "../outcomes.ts";
import { forgetBodyOf } from "./bodies.ts";
import { inParallel, settledInParallel } from "./concurrency.ts";
import { type Context, forgiving } from "./context.ts";
import { findDue, findInIndex } from "./due.ts";
import { keyOf, shards } from "./keys.ts";
import { elsewhere, type ItemEntry, itemOf } from "./record-item.ts";
import type { Change } from "./records.ts";
import type { Condition } from "./table.ts";
import { bytesOf, itemBytesMax, number, numberInIf, text, textIn } from "./values.ts";

/*
 * What workers and operators do. The index says where to look, stores/moves.ts what becomes of each record, and the
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
    sweeping(forgiving(entry, context), options.unclaimed, now),
  );
  for (const end of ended) counts[end] += 1;
  return counts;
}

export async function claimResumable(context: Context, options: ClaimOptions): Promise<ResumableClaim> {
  const now = context.now();
  const filter: Condition = (expression) => `NOT ${isLate(now)(expression)}`;
  const jobs = [{ job: "unfinished", until: now, filter }] as const;
  const answers = await changeDue<Resumable | "gave up">(context, jobs, options.limit, (entry) => {
    const { answer: record, ...change } = claimingResumable(entry, options, now);
    if (record === undefined || record === "gave up" || entry.request === undefined) {
      return { ...change, answer: record === "gave up" ? record : undefined };
    }
    return { ...change, answer: { record, request: decodeRequest(entry.request) } };
  });
  const claimed = answers.filter((answer) => answer !== "gave up");
  return { claimed, gaveUp: answers.length - claimed.length };
}

export function claimUnknown(
  context: Context,
  options: Omit<ClaimOptions, "attemptsMax">,
): Promise<readonly UnknownRecord[]> {
  const now = context.now();
  return changeDue(context, [{ job: "reconcile", until: now }], options.limit, (entry) =>
    claimingUnknown(entry, options, now),
  );
}

/** As the index says, which may be a moment behind. */
export async function unknownCounts({ records: { table }, now }: Context): Promise<UnknownCounts> {
  const counts = { waiting: 0, escalated: 0 };
  let oldest = now();
  const count = async (job: "reconcile" | "escalated", shard: number) => {
    for await (const items of findInIndex(table, job, shard, {})) {
      counts[job === "reconcile" ? "waiting" : "escalated"] += items.length;
      for (const item of items) oldest = Math.min(oldest, numberInIf(item, "lateAt") ?? oldest);
    }
  };
  await inParallel(shards, async (shard) => {
    await count("reconcile", shard);
    await count("escalated", shard);
  });
  return { ...counts, oldestMs: now() - oldest };
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
  return records.change<ResolveAnswer>(said.id, async (entry) => {
    const change = resolving(entry, said, now());
    const next = change.move?.to;
    if (next?.state !== "completed") return change;
    const { response, expiresAt } = next;
    const room = itemBytesMax - bytesOf(itemOf(next, "", { lastOwner: null, parts: elsewhere }));
    return { ...change, parts: await bodies.keep(response, { expiresAt, room }) };
  });
}

export function bust({ records, now }: Context, id: RecordId, said: Bust): Promise<BustAnswer> {
  return records.change<BustAnswer>(id, (entry) => busting(entry, said, now()));
}

export async function reap(
  context: Context,
  { limit, expiry }: { readonly limit: number; readonly expiry: Expiry },
): Promise<ReapCounts> {
  const now = context.now();
  if (expiry === "delete") return { deleted: await deleteDue(context, limit, now), expired: 0 };
  const marked = await changeDue(context, [{ job: "reap", until: now }], limit, ({ record }) => {
    if (!isSettled(record) || record.state === "expired" || record.expiresAt > now) return notDue;
    return { answer: true, move: { to: expired(record), lastOwner: null } };
  });
  return { deleted: 0, expired: marked.length };
}

/** Only what is settled is in these two jobs, so that the record itself need not be read. */
async function deleteDue({ records: { table } }: Context, limit: number, now: number): Promise<number> {
  const jobs = (["reap", "gone"] as const).map((job) => ({ job, until: now }));
  const found = await findDue(table, jobs, limit);
  const outcomes = await settledInParallel(found, async (item) => {
    const outcome = await table.delete(keyOf(item), (expression) => {
      const isInJob = expression.equal({ job: text(textIn(item, "job")) });
      return `${isInJob} AND ${expression.name("dueAt")} <= ${expression.value(number(now))}`;
    });
    await forgetBodyOf(table, outcome);
    return outcome.kind;
  });
  return succeeded(outcomes).filter((kind) => kind === "written").length;
}

/** Changes up to `limit` records that are due, each on its own, and answers what became of those that still were. */
async function changeDue<Answer>(
  { records }: Context,
  jobs: Parameters<typeof findDue>[1],
  limit: number,
  decide: (entry: ItemEntry) => Change<Answer | undefined>,
): Promise<readonly Answer[]> {
  const found = await findDue(records.table, jobs, limit);
  const outcomes = await settledInParallel(found, (item) =>
    records.changeAt<Answer | undefined>(keyOf(item), (entry) =>
      entry === undefined ? notDue : decide(entry),
    ),
  );
  return succeeded(outcomes).filter((answer) => answer !== undefined);
}

/** The index was out of date, or somebody else came first. */
const notDue = { answer: undefined };

function isLate(now: number): Condition {
  return (expression) => `${expression.name("lateAt")} <= ${expression.value(number(now))}`;
}
