import type { Note, NoteAnswer, Notes, NotesReading, NotesWriting, NoteWrite } from "../../core/notes.ts";
import { arrayLiteral, type BatchFunction, float8, text } from "./arrays.ts";
import type { Row } from "./database.ts";
import type { Queries } from "./queries.ts";
import { optionalDurationMs } from "./rows.ts";
import * as statements from "./statements/notes.ts";

export class PostgresNotes implements Notes {
  readonly #queries: Queries;
  #reapedUpTo = "";

  constructor(queries: Queries) {
    this.#queries = queries;
  }

  async read(names: readonly string[]): Promise<NotesReading> {
    const rows = await this.#queries.all<NoteRow>(statements.readNotes, [arrayLiteral(names)]);
    const found = new Map(rows.map((row) => [row.name, noteOf(row)]));
    return { notes: names.map((name) => found.get(name)), now: nowOf(rows) };
  }

  async write(writes: readonly NoteWrite[]): Promise<NotesWriting> {
    const sorted = [...writes].sort((a, b) => (a.name < b.name ? -1 : 1));
    const rows = await this.#queries.batch<NoteRow>(writeNotes, [
      text(sorted, ({ name }) => name),
      text(sorted, ({ expected }) => expected ?? null),
      text(sorted, ({ note }) => note?.version ?? null),
      text(sorted, ({ note }) => (note === undefined ? null : encodeNoteValue(note.value))),
      float8(sorted, ({ ttlMs }) => optionalDurationMs(ttlMs)),
    ]);
    const conflicts = new Map<string | undefined, NoteAnswer>();
    for (const row of rows) {
      if (row.place === null) continue;
      conflicts.set(sorted[row.place - 1]?.name, { kind: "conflict", note: noteOf(row) });
    }
    return { answers: writes.map(({ name }) => conflicts.get(name) ?? written), now: nowOf(rows) };
  }

  /** Looks at up to `limit` notes, from where the last call has ended. */
  async reap(limit: number): Promise<void> {
    const { looked, last } = await this.#queries.one<LookedRow>(statements.reapNotes, [
      limit,
      this.#reapedUpTo,
    ]);
    this.#reapedUpTo = looked < limit ? "" : (last ?? "");
  }
}

/** Text cannot hold U+0000, nor half a surrogate pair; JSON escapes both. */
export function encodeNoteValue(value: string): string {
  return JSON.stringify(value);
}

/** Nothing for a row that only tells the time. */
export function noteOf({ version, value }: Pick<NoteRow, "version" | "value">): Note | undefined {
  return version === null || value === null ? undefined : { value: JSON.parse(value) as string, version };
}

const writeNotes: BatchFunction = { name: "latchkey_note_batch" };

const written: NoteAnswer = { kind: "written" };

interface NoteRow extends Row {
  readonly now: number;
  readonly version: string | null;
  readonly value: string | null;
  /** Of a reading. */
  readonly name: string;
  /** Of a batch, from 1. */
  readonly place: number | null;
}

interface LookedRow extends Row {
  readonly looked: number;
  readonly last: string | null;
}

function nowOf(rows: readonly NoteRow[]): number {
  return rows[0]?.now ?? 0;
}
