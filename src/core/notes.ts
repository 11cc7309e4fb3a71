/**
 * Small facts that all processes of a deployment share: the counters of a limit, the secret of a tenant. Each changes
 * as a whole, from the version that somebody has read to the next, so that what is computed from it is computed by
 * one process at a time.
 */
export interface Notes {
  /** Answers in the order of the names, and with what the store's clock said. */
  read(names: readonly string[]): Promise<NotesReading>;

  /**
   * Each on its own, all in one round trip where the store can; answers in the order of the writes. No name comes
   * twice in one call.
   */
  write(writes: readonly NoteWrite[]): Promise<NotesWriting>;

  /**
   * Resolves when nothing of what was removed or replaced before is left in the store's own files. Left out where only
   * whoever runs the server can see to that.
   */
  scrub?(): Promise<void>;
}

export interface Note {
  readonly value: string;
  /** Made up by whoever wrote it; no two writes have the same, so that a note that was removed and made anew is another. */
  readonly version: string;
}

export interface NoteWrite {
  /** 1 to 300 visible ASCII characters. */
  readonly name: string;
  /** The version that the new value was made from; undefined if there was no such note. */
  readonly expected: string | undefined;
  /** What it becomes; undefined removes it. */
  readonly note: Note | undefined;
  /** It is forgotten this long after the write; left out, never. */
  readonly ttlMs?: number | undefined;
}

export interface NotesReading {
  readonly notes: readonly (Note | undefined)[];
  readonly now: number;
}

export interface NotesWriting {
  readonly answers: readonly NoteAnswer[];
  readonly now: number;
}

export type NoteAnswer =
  | { readonly kind: "written" }
  /** Somebody was faster: this is what is there. It may be one's own, if an earlier answer was lost. */
  | { readonly kind: "conflict"; readonly note: Note | undefined };

/** Removes a note, whatever it says by now. False if others keep changing it. */
export async function removeNote(notes: Notes, name: string): Promise<boolean> {
  for (let attempt = 0; attempt < removalAttemptsMax; attempt += 1) {
    const [note] = (await notes.read([name])).notes;
    if (note === undefined) return true;
    const { answers } = await notes.write([{ name, expected: note.version, note: undefined }]);
    if (answers[0]?.kind === "written") return true;
  }
  return false;
}

/** Nobody changes a note so often. */
const removalAttemptsMax = 20;

/** What every store can hold in one note. */
export const noteBytesMax = 65_536;
