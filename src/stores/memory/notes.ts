import type { Note, NoteAnswer, Notes, NotesReading, NotesWriting, NoteWrite } from "../../core/notes.ts";

/** Notes in this process's memory. */
export class MemoryNotes implements Notes {
  readonly #notes = new Map<string, { readonly note: Note; readonly until: number }>();
  readonly #clock: () => number;

  constructor(clock: () => number) {
    this.#clock = clock;
  }

  async read(names: readonly string[]): Promise<NotesReading> {
    return { notes: names.map((name) => this.#get(name)), now: this.#clock() };
  }

  async write(writes: readonly NoteWrite[]): Promise<NotesWriting> {
    return { answers: writes.map((write) => this.#write(write)), now: this.#clock() };
  }

  /** Forgets notes whose time is over. */
  reap(): void {
    const now = this.#clock();
    for (const [name, { until }] of this.#notes) if (until <= now) this.#notes.delete(name);
  }

  #write({ name, expected, note, ttlMs }: NoteWrite): NoteAnswer {
    const current = this.#get(name);
    if (current?.version !== expected) return { kind: "conflict", note: current };
    if (note === undefined) this.#notes.delete(name);
    else this.#notes.set(name, { note, until: this.#clock() + (ttlMs ?? Number.POSITIVE_INFINITY) });
    return { kind: "written" };
  }

  #get(name: string): Note | undefined {
    const kept = this.#notes.get(name);
    if (kept === undefined || kept.until > this.#clock()) return kept?.note;
    this.#notes.delete(name);
    return undefined;
  }
}
