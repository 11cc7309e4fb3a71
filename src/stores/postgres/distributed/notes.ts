import { StoreError } from "../../../core/errors.ts";
import type { Note, NoteAnswer, Notes, NotesReading, NotesWriting, NoteWrite } from "../../../core/notes.ts";
import type { Row } from "../database.ts";
import { encodeNoteValue, noteOf } from "../notes.ts";
import { optionalDurationMs } from "../rows.ts";
import { notes as statements } from "./note-statements.ts";
import { chunks, eachOf, type Records } from "./records.ts";
import { records as recordStatements } from "./statements.ts";

/** Read in one statement, and written in one for each, from the version that was found. */
export class DistributedNotes implements Notes {
  readonly #records: Records;

  constructor(records: Records) {
    this.#records = records;
  }

  async read(names: readonly string[]): Promise<NotesReading> {
    const { found, now } = await this.#find(names);
    return { notes: names.map((name) => living(found.get(name))), now };
  }

  async write(writes: readonly NoteWrite[]): Promise<NotesWriting> {
    const answers = new Map<NoteWrite, NoteAnswer>();
    for (let round = 0; round < roundsMax; round += 1) {
      const left = writes.filter((write) => !answers.has(write));
      const { found, now } = await this.#find(left.map(({ name }) => name));
      await eachOf(left, async (write) => {
        const answer = await this.#write(write, found.get(write.name));
        if (answer !== undefined) answers.set(write, answer);
      });
      if (answers.size === writes.length) {
        return { answers: writes.map((write) => answers.get(write) ?? written), now };
      }
    }
    throw new StoreError(`notes changed during each of ${roundsMax} attempts to write them`);
  }

  /** Undefined if it was changed since it was found, and has to be looked at again. */
  async #write(write: NoteWrite, found: NoteRow | undefined): Promise<NoteAnswer | undefined> {
    const { name, expected, note, ttlMs } = write;
    const current = living(found);
    if (current?.version !== expected) return { kind: "conflict", note: current };
    if (note !== undefined) return (await this.#put(name, note, { ttlMs, found })) ? written : undefined;
    if (found === undefined || current === undefined) return written;
    return (await this.#remove(found)) ? written : undefined;
  }

  async #put(
    name: string,
    { version, value }: Note,
    { ttlMs, found }: { readonly ttlMs: number | undefined; readonly found: NoteRow | undefined },
  ): Promise<boolean> {
    const parameters = [name, version, encodeNoteValue(value), optionalDurationMs(ttlMs)];
    const rows =
      found === undefined
        ? await this.#records.all(statements.insert, parameters)
        : await this.#records.all(statements.change, [...parameters, found.version]);
    return rows.length > 0;
  }

  async #remove({ name, version }: Pick<NoteRow, "name" | "version">): Promise<boolean> {
    return (await this.#records.all(statements.remove, [name, version])).length > 0;
  }

  async reap(limit: number): Promise<void> {
    const over = await this.#records.all<NoteRow>(statements.over, [limit]);
    await eachOf(over, (note) => this.#remove(note));
  }

  async #find(names: readonly string[]): Promise<{ found: ReadonlyMap<string, NoteRow>; now: number }> {
    const found = new Map<string, NoteRow>();
    let now: number | undefined;
    for (const some of chunks(names)) {
      for (const row of await this.#records.all<NoteRow>(statements.read(some.length), some)) {
        found.set(row.name, row);
        now = row.now;
      }
    }
    if (now !== undefined) return { found, now };
    const [time] = await this.#records.all<{ now: number }>(recordStatements.now);
    return { found, now: time?.now ?? 0 };
  }
}

/** Each round but the first means that somebody else has written one of them at that very moment. */
const roundsMax = 10;

const written: NoteAnswer = { kind: "written" };

interface NoteRow extends Row {
  readonly name: string;
  readonly version: string;
  readonly value: string;
  readonly expires: number | null;
  readonly now: number;
}

/** What is over counts as not there, whether or not it was removed. */
function living(row: NoteRow | undefined): Note | undefined {
  if (row === undefined || (row.expires !== null && row.expires <= row.now)) return undefined;
  return noteOf(row);
}
