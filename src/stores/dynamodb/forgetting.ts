import type { ForgetPass } from "../forgetting.ts";
import { succeeded } from "../outcomes.ts";
import { auditEntryOf } from "./audit.ts";
import { forgetBodyOf } from "./bodies.ts";
import { inParallel, settledInParallel } from "./concurrency.ts";
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
  const unsettled = ["lease", "unfinished", "reconcile", "escalated"] as const;
  await inParallel(placesOf(unsettled, shards), (place) => countRecords(table, place, pass));
  await inParallel(lanes, (lane) => countMessages(table, lane, pass));
  yield* forgetFound(table, placesOf(["reap", "gone"], shards), ownRecords, pass);
  yield* forgetFound(table, placesOf(["audit"], shards), ownEntries, pass);
  yield* forgetFound(table, placesOf(["dead"], [0]), ownMessages, pass);
  yield* forgetFound(table, placesOf(["delivered"], lanes), ownMessages, pass);
}

/** Where in the index something may be. */
interface Place {
  readonly job: Job;
  readonly shard: number;
}

function placesOf(jobs: readonly Job[], ofShards: readonly number[]): Place[] {
  return jobs.flatMap((job) => ofShards.map((shard) => ({ job, shard })));
}

/** Picks out of what the index shows what is the tenant's. */
type OwnIn = (
  table: Table,
  page: readonly Item[],
  pass: ForgetPass,
) => readonly Item[] | Promise<readonly Item[]>;

/** Page after page of all places at once, until each of them has come to its end. */
async function* forgetFound(
  table: Table,
  places: readonly Place[],
  ownIn: OwnIn,
  pass: ForgetPass,
): AsyncGenerator<void, void> {
  let open = places.map(({ job, shard }) => findInIndex(table, job, shard, { limit: pageItems }));
  while (open.length > 0) {
    const pages = await inParallel(open, async (place) => ({ place, page: await place.next() }));
    const left = pages.filter(({ page }) => !page.done);
    const found = left.flatMap(({ page }) => (page.done ? [] : page.value));
    const own = await ownIn(table, found, pass);
    yield* pass.removeAll(own, removedAtOnce, (some) => remove(table, some));
    open = left.map(({ place }) => place);
  }
}

async function remove(table: Table, items: readonly Item[]): Promise<number> {
  const removals = await settledInParallel(items, async (item) => {
    // What is in another job by now, because it is executed again or was requeued, stays.
    const isSame = { job: text(textIn(item, "job")) };
    const outcome = await table.delete(keyOf(item), (expression) => expression.equal(isSame));
    await forgetBodyOf(table, outcome);
    return outcome.kind === "written";
  });
  return succeeded(removals).filter(Boolean).length;
}

/** Of one place. */
const pageItems = 500;

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
