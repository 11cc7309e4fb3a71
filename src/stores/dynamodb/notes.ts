import { StoreError } from "../../core/errors.ts";
import type { Note, NoteAnswer, Notes, NotesReading, NotesWriting, NoteWrite } from "../../core/notes.ts";
import { inParallel } from "./concurrency.ts";
import type { Context } from "./context.ts";
import type { Expression } from "./expression.ts";
import { keyItem, noteKey } from "./keys.ts";
import { ttl } from "./record-item.ts";
import { attemptsMax, pause, type Table, type WriteOutcome } from "./table.ts";
import { type Item, number, numberInIf, present, text, textIn } from "./values.ts";

/** Notes, each an item of its own, whose time is over by the clocks of the processes: DynamoDB deletes only some day. */
export class DynamoDbNotes implements Notes {
  readonly #table: Table;
  readonly #now: () => number;

  constructor({ records, now }: Context) {
    this.#table = records.table;
    this.#now = now;
  }

  async read(names: readonly string[]): Promise<NotesReading> {
    const items = await this.#table.getAll(names.map(noteKey));
    const now = this.#now();
    const found = new Map(items.map((item) => [textIn(item, "pk"), noteOf(item, now)]));
    return { notes: names.map((name) => found.get(noteKey(name).pk)), now };
  }

  /** DynamoDB has no statement for many conditions that may fail one by one, so each note has a request of its own. */
  async write(writes: readonly NoteWrite[]): Promise<NotesWriting> {
    const answers = await inParallel(writes, (write) => this.#write(write));
    return { answers, now: this.#now() };
  }

  async #write(write: NoteWrite): Promise<NoteAnswer> {
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      const outcome = await this.#try(write);
      switch (outcome.kind) {
        case "written":
          return { kind: "written" };
        case "refused": {
          const note = outcome.item && noteOf(outcome.item, this.#now());
          // The client sends again what it got no answer to, and then meets what it has written itself.
          const isOwn = note !== undefined && note.version === write.note?.version;
          return isOwn ? { kind: "written" } : { kind: "conflict", note };
        }
        case "busy":
          await pause(attempt);
          break;
        default:
          outcome satisfies never;
      }
    }
    throw new StoreError(`DynamoDB was busy with a note during each of ${attemptsMax} attempts to write it`);
  }

  #try({ name, expected, note, ttlMs = Number.POSITIVE_INFINITY }: NoteWrite): Promise<WriteOutcome> {
    const now = this.#now();
    const isExpected = (expression: Expression) => {
      const isOver = `${expression.name("until")} <= ${expression.value(number(now))}`;
      if (expected === undefined) return `${expression.notExists("pk")} OR ${isOver}`;
      return `${expression.equal({ version: text(expected) })} AND NOT ${isOver}`;
    };
    if (note === undefined) return this.#table.delete(noteKey(name), isExpected);
    const until = now + ttlMs;
    const item = present({
      ...keyItem(noteKey(name)),
      value: text(note.value),
      version: text(note.version),
      until: ttlMs === Number.POSITIVE_INFINITY ? undefined : number(until),
      ...ttl(until, ttlGraceMs),
    });
    return this.#table.put(item, isExpected);
  }
}

/** No process whose clock is behind is to miss one that it still counts on. */
const ttlGraceMs = 3_600_000;

function noteOf(item: Item, now: number): Note | undefined {
  if ((numberInIf(item, "until") ?? Number.POSITIVE_INFINITY) <= now) return undefined;
  return { value: textIn(item, "value"), version: textIn(item, "version") };
}
