import { StoreError } from "../../core/errors.ts";
import type { Note, NoteAnswer, Notes, NotesReading, NotesWriting, NoteWrite } from "../../core/notes.ts";
import { type ColumnValue, wholeMs } from "../record-row.ts";
import { batchesOf, changeInBatches } from "./batches.ts";
import { type Database, padded, type Row, type Session } from "./database.ts";
import { fromNow, now } from "./statements.ts";

/** Notes in the same database as the records. */
export class MysqlNotes implements Notes {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  async read(names: readonly string[]): Promise<NotesReading> {
    // No note has an empty name; a list cannot be empty, and the time is asked for in any case.
    const { list, values } = padded(names.length === 0 ? [""] : names);
    const rows = await this.#database.read(readNotes(list), values);
    const notes = notesOf(rows);
    return { notes: names.map((name) => notes.get(name)), now: clockOf(rows) };
  }

  async write(writes: readonly NoteWrite[]): Promise<NotesWriting> {
    if (writes.length === 0) return { answers: [], now: (await this.read([])).now };
    const byName = new Map(writes.map((write) => [write.name, write]));
    const answers = new Map<string, NoteAnswer>();
    let clock = 0;
    for (const batch of batchesOf([...byName.keys()])) {
      const written = await this.#database.transaction((session) => writeNotes(session, batch, byName));
      for (const [name, answer] of written.answers) answers.set(name, answer);
      clock = written.now;
    }
    return { answers: writes.map(({ name }) => answers.get(name) ?? unanswered()), now: clock };
  }
}

/** Removes notes whose time is over. */
export async function removeForgotten(database: Database, limit: number): Promise<void> {
  const found = await database.read(findForgotten(limit));
  const names = found.map(({ name }) => name as string);
  await changeInBatches(database, names, deleteForgotten);
}

/**
 * Locks the notes, compares them, and writes those that are what was expected. To lock a note that is not there, it is
 * inserted: whoever only looked for it would lock the gap, and two who insert into that are a deadlock.
 */
async function writeNotes(
  session: Session,
  { list, values: names }: ReturnType<typeof padded<string>>,
  writes: ReadonlyMap<string, NoteWrite>,
): Promise<{ readonly answers: ReadonlyMap<string, NoteAnswer>; readonly now: number }> {
  await session.change(lockNotes(names.length), names);
  const rows = await session.rows(readLocked(list), names);
  const current = notesOf(rows);
  const answers = new Map<string, NoteAnswer>();
  const changed: NoteWrite[] = [];
  const gone: string[] = [];
  for (const name of new Set(names)) {
    const write = writes.get(name) ?? unanswered();
    const note = current.get(name);
    const isExpected = note?.version === write.expected;
    answers.set(name, isExpected ? { kind: "written" } : { kind: "conflict", note });
    if (isExpected && write.note !== undefined) changed.push(write);
    else if (isExpected || note === undefined) gone.push(name);
  }
  await insertNotes(session, changed);
  for (const batch of batchesOf(gone)) await session.change(deleteNotes(batch.list), batch.values);
  return { answers, now: clockOf(rows) };
}

async function insertNotes(session: Session, writes: readonly NoteWrite[]): Promise<void> {
  const last = writes.at(-1);
  if (last === undefined) return;
  // The last one again and again, up to a power of two: written twice, it is the same.
  const size = 2 ** Math.ceil(Math.log2(writes.length));
  const rows = [...writes, ...Array.from({ length: size - writes.length }, () => last)];
  await session.change(replaceNotes(size), rows.flatMap(noteRow));
}

function noteRow({ name, note, ttlMs }: NoteWrite): ColumnValue[] {
  return [name, note?.version ?? "", ttlMs === undefined ? null : wholeMs(ttlMs), note?.value ?? ""];
}

/** Those whose time is not over. */
function notesOf(rows: readonly Row[]): ReadonlyMap<string, Note> {
  return new Map(
    rows
      .filter(({ is_there }) => is_there === 1)
      .map(({ name, version, value }) => [
        name as string,
        { value: value as string, version: version as string },
      ]),
  );
}

function clockOf([row]: readonly Row[]): number {
  if (row === undefined) throw new StoreError("MySQL did not say what time it is");
  return Number(row.clock);
}

function unanswered(): never {
  throw new StoreError("MySQL did not say what became of a note");
}

const isThere = `(forget_at IS NULL OR forget_at > ${now})`;

/** Parameters: the names. Answers with a row in any case, for the time. */
const readNotes = (list: string) => `
  SELECT ${now} AS clock, name, version, value, name IS NOT NULL AS is_there
    FROM (SELECT 1) AS always
         LEFT JOIN latchkey_notes ON name IN (${list}) AND ${isThere}`;

/** Locks each, in this order. What was not there is there then, as one whose time is over. Parameters: the names. */
const lockNotes = (count: number) => `
  INSERT INTO latchkey_notes (name, version, forget_at, value)
  VALUES ${Array.from({ length: count }, () => "(?, '', 0, '')").join(", ")}
      ON DUPLICATE KEY UPDATE name = VALUES(name)`;

/** Parameters: the names. */
const readLocked = (list: string) => `
  SELECT ${now} AS clock, name, version, value, ${isThere} AS is_there
    FROM latchkey_notes FORCE INDEX (PRIMARY)
   WHERE name IN (${list})
     FOR UPDATE`;

/** Parameters of each: name, version, for how long, value. */
const replaceNotes = (count: number) => `
  INSERT INTO latchkey_notes (name, version, forget_at, value)
  VALUES ${Array.from({ length: count }, () => `(?, ?, ${fromNow("?")}, ?)`).join(", ")}
      ON DUPLICATE KEY UPDATE version = VALUES(version), forget_at = VALUES(forget_at), value = VALUES(value)`;

/** Parameters: the names. */
const deleteNotes = (list: string) => `
  DELETE n
    FROM latchkey_notes AS n FORCE INDEX (PRIMARY)
   WHERE n.name IN (${list})`;

const findForgotten = (limit: number) => `
  SELECT name
    FROM latchkey_notes
   WHERE forget_at <= ${now}
   ORDER BY forget_at
   LIMIT ${limit}`;

/** Parameters: the names. */
const deleteForgotten = (list: string) => `${deleteNotes(list)} AND n.forget_at <= ${now}`;
