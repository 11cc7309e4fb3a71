import { StoreError } from "../../../core/errors.ts";
import type { RecordId } from "../../../core/record.ts";
import type { Move, Moved } from "../../moves.ts";
import { succeeded } from "../../outcomes.ts";
import type { Database, Parameter, Query, Row } from "../database.ts";
import { storeError } from "../errors.ts";
import { retrying } from "./retrying.ts";
import { changedValues, type Entry, type EntryRow, entryOf, newRevision } from "./rows.ts";
import { audit, records } from "./statements.ts";

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

  /** False if it has changed since it was found. */
  async apply(found: Entry, move: Move): Promise<boolean> {
    const { scope, key } = found.record;
    const parameters = [scope, key, found.revision, ...changedValues(found, move)];
    const { audit: said } = move;
    if (said === undefined) return (await this.all(records.change, parameters)).length > 0;
    return this.together(async (query) => {
      if ((await query(records.change, parameters)).length === 0) return false;
      // Not the revision of the record: a page of the trail is named by it.
      const { fence, from, to, by, reason } = said;
      await query(audit.write, [scope, key, `.${newRevision()}`, fence, from, to, by, reason]);
      return true;
    });
  }

  /** Looks at a record, and changes it as `decide` says; again, if somebody else was faster. */
  async change<Answer>(
    id: RecordId,
    decide: (found: Entry | undefined, now: number) => Moved<Answer>,
  ): Promise<Answer> {
    for (let round = 0; round < roundsMax; round += 1) {
      const found = await this.find(id);
      const { answer, move } = decide(found, found?.now ?? 0);
      if (move === undefined || (found !== undefined && (await this.apply(found, move)))) return answer;
    }
    throw new StoreError(`the record changed during each of ${roundsMax} attempts to change it`);
  }

  /** Changes what was found as `decide` says, each on its own; answers for those that nobody else was faster at. */
  async changeEach<Answer>(
    entries: readonly Entry[],
    decide: (found: Entry) => Moved<Answer | undefined>,
  ): Promise<Answer[]> {
    const answers = await eachOf(entries, async (found) => {
      const { answer, move } = decide(found);
      return move !== undefined && (await this.apply(found, move)) ? answer : undefined;
    });
    return answers.filter((answer) => answer !== undefined);
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

/** Each round but the first means that somebody else has changed the record at that very moment. */
const roundsMax = 10;

/** A statement has room for 65,535 parameters, and is easier to plan with far fewer. */
export function chunks<T>(items: readonly T[]): T[][] {
  return Array.from({ length: Math.ceil(items.length / chunkSize) }, (_, index) =>
    items.slice(index * chunkSize, (index + 1) * chunkSize),
  );
}

const chunkSize = 100;
