import type { ForgetPass } from "../forgetting.ts";
import { auditEntryOf } from "./audit.ts";
import { forgetBodyOf } from "./bodies.ts";
import { inParallel } from "./concurrency.ts";
import type { Context } from "./context.ts";
import { findInIndex } from "./due.ts";
import { messagesIn } from "./enqueue.ts";
import { type Job, keyOf, scopeInPk, shards } from "./keys.ts";
import { lanes, scopeIn } from "./messages.ts";
import type { Table } from "./table.ts";
import { type Item, numberInIf, text, textIn } from "./values.ts";

/**
 * Goes through the index, which has everything that may have to go and is small beside the table. What is not settled
 * comes first: what is settled meanwhile is then found where it is now.
 */
export async function* forgetEverywhere(
  { records: { table } }: Context,
  pass: ForgetPass,
): AsyncGenerator<void, void> {
  for (const job of ["lease", "unfinished", "reconcile", "escalated"] as const) {
    for (const shard of shards) await countRecords(table, { job, shard }, pass);
  }
  for (const lane of lanes) await countMessages(table, lane, pass);
  for (const job of ["reap", "gone"] as const) {
    for (const shard of shards) yield* forgetFound(table, { job, shard, ownIn: ownRecords }, pass);
  }
  for (const shard of shards) yield* forgetFound(table, { job: "audit", shard, ownIn: ownEntries }, pass);
  yield* forgetFound(table, { job: "dead", shard: 0, ownIn: ownMessages }, pass);
  for (const lane of lanes) {
    yield* forgetFound(table, { job: "delivered", shard: lane, ownIn: ownMessages }, pass);
  }
}

/** Picks out of what the index shows what is the tenant's. */
type OwnIn = (
  table: Table,
  page: readonly Item[],
  pass: ForgetPass,
) => readonly Item[] | Promise<readonly Item[]>;

interface Place {
  readonly job: Job;
  readonly shard: number;
}

async function* forgetFound(
  table: Table,
  { job, shard, ownIn }: Place & { readonly ownIn: OwnIn },
  pass: ForgetPass,
): AsyncGenerator<void, void> {
  for await (const page of findInIndex(table, job, shard, {})) {
    const own = await ownIn(table, page, pass);
    yield* pass.removeAll(own, removedAtOnce, async (some) => {
      const removals = await inParallel(some, async (item) => {
        // What is in another job by now, because it is executed again or was requeued, stays.
        const isSame = { job: text(textIn(item, "job")) };
        const outcome = await table.delete(keyOf(item), (expression) => expression.equal(isSame));
        await forgetBodyOf(table, outcome);
        return outcome.kind === "written";
      });
      return removals.filter(Boolean).length;
    });
  }
}

/** Each is a request. */
const removedAtOnce = 50;

async function countRecords(table: Table, { job, shard }: Place, pass: ForgetPass): Promise<void> {
  for await (const page of findInIndex(table, job, shard, {})) {
    for (const item of await ownRecords(table, page, pass)) pass.countUnsettled(textIn(item, "pk"));
  }
}

async function countMessages(table: Table, lane: number, pass: ForgetPass): Promise<void> {
  for await (const page of findInIndex(table, "outbox", lane, {})) {
    const isParcel = (item: Item) => numberInIf(item, "messages") !== undefined;
    for (const item of ownMessages(
      table,
      page.filter((item) => !isParcel(item)),
      pass,
    )) {
      pass.countUnsettled(`${textIn(item, "pk")} ${textIn(item, "sk")}`);
    }
    const parcels = await table.getAll(page.filter(isParcel).map(keyOf));
    for (const { scope, pk, sequence } of parcels.flatMap(messagesIn)) {
      if (pass.isOwn(scope)) pass.countUnsettled(`${pk} ${sequence}`);
    }
  }
}

/** A name that is too long is only a digest in the index: such a record has to be read. */
async function ownRecords(table: Table, page: readonly Item[], pass: ForgetPass): Promise<readonly Item[]> {
  const unnamed = page.filter((item) => scopeInPk(textIn(item, "pk")) === undefined);
  const read = await table.getAll(unnamed.map(keyOf));
  const scopes = new Map(read.map((item) => [textIn(item, "pk"), textIn(item, "scope")]));
  return page.filter((item) => {
    const pk = textIn(item, "pk");
    const scope = scopeInPk(pk) ?? scopes.get(pk);
    return scope !== undefined && pass.isOwn(scope);
  });
}

function ownEntries(_table: Table, page: readonly Item[], pass: ForgetPass): readonly Item[] {
  return page.filter((item) => pass.isOwn(auditEntryOf(item).scope));
}

function ownMessages(_table: Table, page: readonly Item[], pass: ForgetPass): readonly Item[] {
  return page.filter((item) => pass.isOwn(scopeIn(item)));
}
