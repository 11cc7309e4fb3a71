import type { Notes } from "../../core/notes.ts";
import { noteNames } from "./names.ts";

/** A process that tells of itself, or did. */
export interface Entry {
  readonly id: string;
  readonly startedAt: number;
  /** When it last said that it is there, which it does not do often. */
  readonly seenAt: number;
}

/** Notes cannot be listed, so the ids of all processes are in one of them. */
export const directory = {
  async read(notes: Notes): Promise<{ readonly entries: readonly Entry[]; readonly now: number }> {
    const { notes: found, now } = await notes.read([noteNames.directory]);
    return { entries: entriesIn(found[0]?.value), now };
  },

  /** Answers with the store's time; undefined if others kept being faster, and it is to be tried again later. */
  async enter(
    notes: Notes,
    own: Omit<Entry, "seenAt">,
    newVersion: () => string,
  ): Promise<number | undefined> {
    const found = await notes.read([noteNames.directory]);
    let { now } = found;
    let [known] = found.notes;
    for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
      const value = entriesText([...entriesIn(known?.value), { ...own, seenAt: now }], now);
      const write = {
        name: noteNames.directory,
        expected: known?.version,
        note: { value, version: newVersion() },
        ttlMs: keptMs,
      };
      const writing = await notes.write([write]);
      now = writing.now;
      const [answer] = writing.answers;
      if (answer?.kind !== "conflict") return now;
      known = answer.note;
    }
    return undefined;
  },
};

function entriesIn(text: string | undefined): readonly Entry[] {
  let value: unknown;
  try {
    value = JSON.parse(text ?? "[]");
  } catch {
    // A later version wrote it, in its own way.
  }
  if (!Array.isArray(value)) return [];
  return value.flatMap((entry: unknown) => {
    const [id, startedAt, seenAt] = Array.isArray(entry) ? (entry as unknown[]) : [];
    const isEntry = typeof id === "string" && typeof startedAt === "number" && typeof seenAt === "number";
    return isEntry ? [{ id, startedAt, seenAt }] : [];
  });
}

/** One entry for each process, without those whose numbers have all been forgotten by now. */
function entriesText(entries: readonly Entry[], now: number): string {
  const byId = new Map(entries.map((entry) => [entry.id, entry]));
  const kept = [...byId.values()]
    .filter(({ seenAt }) => now - seenAt < keptMs)
    .sort((one, other) => other.seenAt - one.seenAt)
    .slice(0, entriesMax);
  return JSON.stringify(kept.map(({ id, startedAt, seenAt }) => [id, startedAt, seenAt]));
}

/** How often a process says that it is there. */
export const entryMs = 600_000;

const keptMs = 8 * 86_400_000; // The longest window, and a day.
const entriesMax = 1_000; // Of 50 characters each, in a note of 64 KB.
const attemptsMax = 10; // A whole fleet that starts at once writes it in turns of some seconds.
