import { bufferOf } from "../../core/bytes.ts";
import type { Note, NoteAnswer, Notes, NotesReading, NotesWriting, NoteWrite } from "../../core/notes.ts";
import { moment } from "../record-row.ts";
import { type Row, type SqliteDatabase, Statement } from "./driver.ts";

/** What the notes need of their store. */
export interface NotesContext {
  readonly now: () => number;
  /** Carries out a write, and answers after it is durable. */
  readonly write: <T>(work: (statements: NoteStatements) => T) => Promise<T>;
  readonly read: <T>(look: (statements: NoteStatements) => T) => T;
  readonly scrub: () => Promise<void>;
}

/**
 * Notes in the same file as the records. Whoever writes has the file alone, and so a note can be compared first. What is
 * removed or replaced may be the secret of a tenant, so that no byte of it stays behind.
 */
export class SqliteNotes implements Notes {
  readonly #context: NotesContext;

  constructor(context: NotesContext) {
    this.#context = context;
  }

  async read(names: readonly string[]): Promise<NotesReading> {
    const now = this.#context.now();
    const notes = this.#context.read((statements) => names.map((name) => noteOf(statements, name, now)));
    return { notes, now };
  }

  async write(writes: readonly NoteWrite[]): Promise<NotesWriting> {
    return this.#context.write((statements) => {
      const now = this.#context.now();
      return { answers: writes.map((write) => writeNote(statements, write, now)), now };
    });
  }

  scrub(): Promise<void> {
    return this.#context.scrub();
  }
}

function writeNote(statements: NoteStatements, write: NoteWrite, now: number): NoteAnswer {
  const { name, expected, note, ttlMs } = write;
  const current = noteOf(statements, name, now);
  if (current?.version !== expected) return { kind: "conflict", note: current };
  if (note === undefined) statements.deleteNote.run(name);
  else {
    const forgetAt = ttlMs === undefined ? null : moment(now + ttlMs);
    statements.writeNote.run(name, note.version, forgetAt, Buffer.from(note.value));
  }
  return { kind: "written" };
}

function noteOf(statements: NoteStatements, name: string, now: number): Note | undefined {
  const row: Row | undefined = statements.readNote.get(name, now);
  if (row === undefined) return undefined;
  const value = row.value as Uint8Array | null;
  return { value: value === null ? "" : bufferOf(value).toString("utf8"), version: row.version as string };
}

/** Every statement on notes, prepared once for each connection. */
export function prepareNoteStatements(database: SqliteDatabase) {
  const prepare = (sql: string) => new Statement(database, sql);
  return {
    readNote: prepare(readNote),
    writeNote: prepare(writeNoteRow),
    deleteNote: prepare(deleteNote),
    deleteForgotten: prepare(deleteForgotten),
  };
}

export type NoteStatements = ReturnType<typeof prepareNoteStatements>;

/** Parameters: the name, the time. */
const readNote = `
  SELECT version, value
    FROM latchkey_notes
   WHERE name = ? AND (forget_at IS NULL OR forget_at > ?)`;

const writeNoteRow = `
  INSERT INTO latchkey_notes (name, version, forget_at, value)
  VALUES (?, ?, ?, ?)
      ON CONFLICT (name) DO UPDATE
     SET version = excluded.version, forget_at = excluded.forget_at, value = excluded.value`;

const deleteNote = `
  DELETE FROM latchkey_notes
   WHERE name = ?`;

/** Parameters: the time, the limit. */
export const deleteForgotten = `
  DELETE FROM latchkey_notes
   WHERE rowid IN (
           SELECT rowid
             FROM latchkey_notes
            WHERE forget_at <= ?
            ORDER BY forget_at
            LIMIT ?)`;
