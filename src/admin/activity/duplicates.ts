import { hash } from "node:crypto";
import { type RecordId, recordIdText } from "../../core/record.ts";
import type { ReserveOutcome } from "../../engine/events.ts";
import type { DuplicatesView } from "../views.ts";
import { parsed } from "./sheet.ts";

type Kind = Exclude<keyof DuplicatesView, "lastAt">;
type Counts = Record<Kind, number> & { lastAt: number };

interface Duplicate extends RecordId {
  readonly outcome: ReserveOutcome;
}

/** What came again with the keys that were sent again lately; no more than so many of them. */
export class Duplicates {
  readonly #byId = new Map<string, Counts>();
  readonly #aside: Duplicate[] = [];
  /** How often it has changed, and how often it had when it was last told. */
  #changes = 0;
  #told = 0;

  /**
   * On the path of a duplicate, so it is only put aside. Of more than can be put aside until the next `putDown` some are
   * not remembered: who comes so often is seen anyway.
   */
  add(duplicate: Duplicate): void {
    if (kinds[duplicate.outcome] !== undefined && this.#aside.length < asideMax) this.#aside.push(duplicate);
  }

  putDown(now: number): void {
    if (this.#aside.length === 0) return;
    for (const duplicate of this.#aside) this.#count(duplicate, now);
    this.#aside.length = 0;
    this.#changes += 1;
    for (const oldest of this.#byId.keys()) {
      if (this.#byId.size <= keysMax) return;
      this.#byId.delete(oldest);
    }
  }

  #count(duplicate: Duplicate, now: number): void {
    const kind = kinds[duplicate.outcome];
    if (kind === undefined) return;
    const name = recordIdText(duplicate);
    const counts = this.#byId.get(name) ?? { replayed: 0, inProgress: 0, misused: 0, unknown: 0, lastAt: 0 };
    counts[kind] += 1;
    counts.lastAt = now;
    // What was used last is at the end.
    this.#byId.delete(name);
    this.#byId.set(name, counts);
  }

  /** How often it has changed. */
  get changes(): number {
    return this.#changes;
  }

  get isTold(): boolean {
    return this.#changes === this.#told;
  }

  /** Somebody was told of everything up to this change. */
  told(changes: number): void {
    this.#told = changes;
  }

  get text(): string {
    const told = [...this.#byId].map(([name, counts]) => {
      const { replayed, inProgress, misused, unknown, lastAt } = counts;
      return [digestOf(name), [replayed, inProgress, misused, unknown, lastAt]];
    });
    return JSON.stringify(Object.fromEntries(told));
  }
}

/** What notes say about one record, all together; null if none does. */
export function duplicatesIn(notes: readonly string[], id: RecordId): DuplicatesView | null {
  const digest = digestOf(recordIdText(id));
  const sum = { replayed: 0, inProgress: 0, misused: 0, unknown: 0, lastAt: 0 };
  for (const note of notes) {
    const told = parsed(note)[digest];
    if (!Array.isArray(told)) continue;
    const [replayed, inProgress, misused, unknown, lastAt] = told.map((value) => Number(value) || 0);
    sum.replayed += replayed ?? 0;
    sum.inProgress += inProgress ?? 0;
    sum.misused += misused ?? 0;
    sum.unknown += unknown ?? 0;
    sum.lastAt = Math.max(sum.lastAt, lastAt ?? 0);
  }
  return sum.lastAt === 0 ? null : sum;
}

/** Short, and nobody's name: what is told here outlives the records. */
function digestOf(name: string): string {
  return hash("sha256", name, "base64url").slice(0, 22);
}

const kinds: Partial<Record<ReserveOutcome, Kind>> = {
  replay: "replayed",
  in_progress: "inProgress",
  key_misuse: "misused",
  unknown: "unknown",
};

const keysMax = 200;
const asideMax = 2_000; // Some milliseconds of work in each second.
