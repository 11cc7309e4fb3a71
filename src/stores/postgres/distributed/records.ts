import type { IdempotencyRecord, RecordId } from "../../../core/record.ts";
import { succeeded } from "../../outcomes.ts";
import type { Database, Parameter, Query, Row } from "../database.ts";
import { storeError } from "../errors.ts";
import { retrying } from "./retrying.ts";
import { changedValues, type Entry, type EntryRow, entryOf, type Kept, newRevision } from "./rows.ts";
import { audit, records } from "./statements.ts";

/** Why a record was moved off the happy path. */
export interface Why {
  readonly by: string;
  readonly reason: string;
}

/** Finds records, and changes each as it was found or not at all. Whatever lost against others is tried again. */
export class Records {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** One statement in a transaction of its own. */
  async all<R extends Row>(statement: string, parameters: readonly Parameter[] = []): Promise<readonly R[]> {
    try {
      return await retrying(() => this.#database.query<R>(statement, parameters));
    } catch (error) {
      throw storeError(error);
    }
  }

  /** All or nothing. */
  async together<T>(work: (query: Query) => Promise<T>): Promise<T> {
    try {
      return await retrying(() => this.#database.transaction(work));
    } catch (error) {
      throw storeError(error);
    }
  }

  async find({ scope, key }: RecordId): Promise<Entry | undefined> {
    const rows = await this.all<EntryRow>(records.read, [scope, key]);
    return rows.map(entryOf)[0];
  }

  async scan(statement: string, limit: number): Promise<readonly Entry[]> {
    if (limit <= 0) return [];
    return (await this.all<EntryRow>(statement, [limit])).map(entryOf);
  }

  /** False if it has changed since it was found. With `why` the audit trail tells of it. */
  async change(found: Entry, next: IdempotencyRecord, kept: Kept, why?: Why): Promise<boolean> {
    const { scope, key } = found.record;
    const parameters = [scope, key, found.revision, ...changedValues(next, kept)];
    if (why === undefined) return (await this.all(records.change, parameters)).length > 0;
    return this.together(async (query) => {
      if ((await query(records.change, parameters)).length === 0) return false;
      const { by, reason } = why;
      // Not the revision of the record: a page of the trail is named by it.
      const said = [`.${newRevision()}`, next.fence, found.record.state, next.state, by, reason];
      await query(audit.write, [scope, key, ...said]);
      return true;
    });
  }

  /** Somebody else than the owner moves the record on: the owner's word counts no more. */
  move(found: Entry, next: IdempotencyRecord, why: Why): Promise<boolean> {
    const isOver = next.state === "completed" || next.state === "expired";
    return this.change(found, next, { owner: null, request: isOver ? undefined : found.request }, why);
  }

  async remove({ scope, key }: RecordId, revision: string): Promise<boolean> {
    return (await this.all(records.remove, [scope, key, revision])).length > 0;
  }
}

/**
 * One after the other, as many as these at a time: an engine of many machines gains by it, and none is flooded. Each may
 * fail on its own.
 */
export async function eachSettled<T, R>(
  items: readonly T[],
  work: (item: T) => Promise<R>,
): Promise<PromiseSettledResult<R>[]> {
  const outcomes: PromiseSettledResult<R>[] = [];
  for (let start = 0; start < items.length; start += atOnce) {
    outcomes.push(...(await Promise.allSettled(items.slice(start, start + atOnce).map(work))));
  }
  return outcomes;
}

/** Answers what was done, and fails only if nothing was. */
export async function eachOf<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  return succeeded(await eachSettled(items, work));
}

const atOnce = 8;

/** A statement has room for 65,535 parameters, and is easier to plan with far fewer. */
export function chunks<T>(items: readonly T[]): T[][] {
  return Array.from({ length: Math.ceil(items.length / chunkSize) }, (_, index) =>
    items.slice(index * chunkSize, (index + 1) * chunkSize),
  );
}

const chunkSize = 100;
