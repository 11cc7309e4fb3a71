import { type InProgressRecord, recordIdText } from "../../core/record.ts";
import type { EncodedResponse } from "../../core/response.ts";
import type { Lease } from "../../core/store.ts";
import { PlacedLease } from "../placed-lease.ts";
import { moment, wholeMs } from "../record-row.ts";
import type { SqliteValue, Statement } from "./driver.ts";
import type { Records } from "./records.ts";
import { bunchSizes } from "./statements.ts";

/*
 * Many rows in one statement, where there are enough that have the same terms. A statement tells only how many rows it
 * has changed; which ones they were is looked up when they were not all of them, and that is rare.
 */

/** What a lease has come to. */
export interface Completion {
  readonly lease: Lease;
  readonly response: EncodedResponse;
  readonly completedAt: number;
  readonly expiresAt: number;
}

/** The row of each of these records, no two of which have one key; undefined where it was there already. */
export function insertAll(
  records: Records,
  candidates: readonly (InProgressRecord | undefined)[],
): readonly (number | undefined)[] {
  const { bunches, others } = gather(candidates, { isFit: () => true, areAlike: haveSameTerms });
  const rows: (number | undefined)[] = candidates.map(() => undefined);
  for (const bunch of bunches) {
    const inserted = insertBunch(records, bunch);
    for (const [index, { place, item }] of bunch.placed.entries()) rows[place] = inserted(item, index);
  }
  for (const { place, item } of others) rows[place] = records.insert(item);
  return rows;
}

/** Whether each of these leases was held and has been completed now. */
export function completeAll(records: Records, completions: readonly Completion[]): readonly boolean[] {
  const { bunches, others } = gather(completions, { isFit: isSmall, areAlike: haveSameOutcome });
  const isHeld = completions.map(() => false);
  for (const bunch of bunches) {
    if (completeBunch(records, bunch)) for (const { place } of bunch.placed) isHeld[place] = true;
    // Those that were completed are not held any more, and who said so may say it again.
    else others.push(...bunch.placed);
  }
  for (const { place, item } of others) isHeld[place] = records.complete(item);
  return isHeld;
}

/** One of many, and where it was among them. */
interface Placed<Item> {
  readonly place: number;
  readonly item: Item;
}

/** As many as there is a statement for, with the same terms. */
interface Bunch<Item> {
  readonly terms: Item;
  readonly placed: readonly Placed<Item>[];
}

/** Puts together what fits into one statement, as often as there is enough of it. */
function gather<Item>(
  items: readonly (Item | undefined)[],
  rules: { isFit(item: Item): boolean; areAlike(one: Item, other: Item): boolean },
): { readonly bunches: readonly Bunch<Item>[]; readonly others: Placed<Item>[] } {
  const kinds: { readonly terms: Item; readonly placed: Placed<Item>[] }[] = [];
  const others: Placed<Item>[] = [];
  for (const [place, item] of items.entries()) {
    if (item === undefined) continue;
    if (!rules.isFit(item)) others.push({ place, item });
    else {
      const kind = kinds.find(({ terms }) => rules.areAlike(terms, item));
      if (kind === undefined) kinds.push({ terms: item, placed: [{ place, item }] });
      else kind.placed.push({ place, item });
    }
  }
  const bunches: Bunch<Item>[] = [];
  for (const { terms, placed } of kinds) {
    for (const size of bunchSizes) {
      while (placed.length >= size) bunches.push({ terms, placed: placed.splice(0, size) });
    }
    others.push(...placed);
  }
  return { bunches, others };
}

function statementFor(bySize: ReadonlyMap<number, Statement>, { placed }: Bunch<unknown>): Statement {
  const statement = bySize.get(placed.length);
  if (statement === undefined) throw new Error(`there is no statement for ${placed.length} rows`);
  return statement;
}

function haveSameTerms(one: InProgressRecord, other: InProgressRecord): boolean {
  return (
    one.fence === other.fence &&
    one.onCrash === other.onCrash &&
    one.createdAt === other.createdAt &&
    one.expiresAt === other.expiresAt &&
    one.leaseUntil === other.leaseUntil &&
    one.route === other.route &&
    one.reconcileAfterMs === other.reconcileAfterMs
  );
}

/** Answers with what tells the row of one of them; undefined if it was not inserted. */
function insertBunch(
  records: Records,
  bunch: Bunch<InProgressRecord>,
): (item: InProgressRecord, index: number) => number | undefined {
  const { terms, placed } = bunch;
  const parameters: SqliteValue[] = [
    terms.fence,
    terms.onCrash,
    moment(terms.createdAt),
    moment(terms.expiresAt),
    moment(terms.leaseUntil),
    terms.route ?? null,
    wholeMs(terms.reconcileAfterMs),
  ];
  for (const { item } of placed) parameters.push(item.scope, item.key, item.fingerprint, item.owner);
  const { insertReservations, readInserted } = records.statements;
  const { changes, lastRowid } = statementFor(insertReservations, bunch).runWith(parameters);
  // Rows are numbered in the order in which they are inserted.
  const before = lastRowid - changes;
  if (changes === placed.length) return (_, index) => before + 1 + index;
  if (changes === 0) return () => undefined;
  const inserted = new Map(
    readInserted
      .all(before)
      .map(({ row, scope, key }) => [
        recordIdText({ scope: scope as string, key: key as string }),
        row as number,
      ]),
  );
  return (item) => inserted.get(recordIdText(item));
}

function haveSameOutcome(one: Completion, other: Completion): boolean {
  return (
    one.response.status === other.response.status &&
    one.response.head === other.response.head &&
    one.completedAt === other.completedAt &&
    one.expiresAt === other.expiresAt &&
    one.lease.fence === other.lease.fence &&
    isPlaced(one) === isPlaced(other)
  );
}

function isPlaced({ lease }: Completion): boolean {
  return PlacedLease.placeOf<number>(lease) !== undefined;
}

function isSmall({ response }: Completion): boolean {
  return (response.body?.byteLength ?? 0) <= bunchedBodyBytesMax;
}

/** SQLite copies a bunch before it writes it. A larger body than a page takes longer to copy than a call to make. */
const bunchedBodyBytesMax = 4_096;

/** Some fifty times what it takes: nothing is waited for in here. */
const longMs = 20;

/** Whether all of them were held, and their records where they were written down. */
function completeBunch(records: Records, bunch: Bunch<Completion>): boolean {
  const { terms, placed } = bunch;
  const { status, head } = terms.response;
  const { completedAt, expiresAt, lease } = terms;
  const parameters: SqliteValue[] = [status, head, completedAt, expiresAt];
  for (const { item } of placed) {
    const { scope, key, owner } = item.lease;
    parameters.push(scope, key, owner, item.response.body);
    const row = PlacedLease.placeOf<number>(item.lease);
    if (row !== undefined) parameters.push(row);
  }
  parameters.push(lease.fence);
  const { completeLeases, completePlacedLeases } = records.statements;
  const statement = statementFor(isPlaced(terms) ? completePlacedLeases : completeLeases, bunch);
  const begunAt = performance.now();
  const { changes } = statement.runWith(parameters);
  if (performance.now() - begunAt >= longMs) records.tookLong();
  return changes === placed.length;
}
