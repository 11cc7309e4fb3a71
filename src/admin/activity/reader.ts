import { ConfigError } from "../../core/errors.ts";
import type { RecordId } from "../../core/record.ts";
import type { Latchkey } from "../../latchkey.ts";
import {
  type ActivitySeries,
  type ActivityView,
  activitySeries,
  type DuplicatesView,
  type ProcessView,
  type WorkerView,
} from "../views.ts";
import { directory, type Entry, entryMs } from "./directory.ts";
import { duplicatesIn } from "./duplicates.ts";
import { noteNames } from "./names.ts";
import { parsed, type Resolution, readSheet, resolutions, sheetMs, sheetStart } from "./sheet.ts";

export interface ActivityQuery {
  /** How far back, up to seven days. */
  readonly windowMs: number;
  /** How long one step is: 10 s up to an hour back, a minute up to a day, 10 minutes up to a week, or a multiple of it. */
  readonly stepMs: number;
}

/** What all processes have told of themselves. */
export class ActivityReader {
  readonly #latchkey: Latchkey;

  constructor(latchkey: Latchkey) {
    this.#latchkey = latchkey;
  }

  async activity(query: ActivityQuery): Promise<ActivityView> {
    const { windowMs, stepMs } = query;
    const resolution = resolutionFor(query);
    const { entries, now } = await this.#directory();
    const from = (Math.floor(now / stepMs) + 1) * stepMs - windowMs;
    const series = Object.fromEntries(
      activitySeries.map((name) => [name, Array<number>(windowMs / stepMs).fill(0)]),
    ) as Record<ActivitySeries, number[]>;
    const sheets = sheetsOf(entries, resolution, { from, now });
    const texts = await this.#read(sheets.map(({ name }) => name));
    for (const [index, text] of texts.entries()) {
      const start = sheets[index]?.start;
      if (text === undefined || start === undefined) continue;
      readSheet(text, (name, step, count) => {
        const at = Math.floor((start + step * resolution.stepMs - from) / stepMs);
        const counts = series[name];
        if (at >= 0 && at < counts.length) counts[at] = (counts[at] ?? 0) + count;
      });
    }
    return { from, stepMs, series };
  }

  /** Those that live, and those that have died within the last hour without having said so. */
  async processes(): Promise<readonly ProcessView[]> {
    const { entries, now } = await this.#directory();
    const recent = entries.filter(({ seenAt }) => now - seenAt < processMs + entryMs).slice(0, processesMax);
    const texts = await this.#read(recent.map(({ id }) => noteNames.process(id)));
    return texts
      .flatMap((text, index) => {
        const id = recent[index]?.id;
        return text === undefined || id === undefined ? [] : [processView(id, parsed(text), now)];
      })
      .sort((one, other) => compare(one.role, other.role) || one.startedAt - other.startedAt);
  }

  /** What came again with the key of a record; null if nobody has told of it. */
  async duplicates(id: RecordId): Promise<DuplicatesView | null> {
    const { entries, now } = await this.#directory();
    const recent = entries
      .filter(({ seenAt }) => now - seenAt < duplicatesMs)
      .slice(0, duplicatesProcessesMax);
    const texts = await this.#read(recent.map((entry) => noteNames.duplicates(entry.id)));
    return duplicatesIn(
      texts.filter((text) => text !== undefined),
      id,
    );
  }

  #directory(): Promise<{ readonly entries: readonly Entry[]; readonly now: number }> {
    const { engine, store } = this.#latchkey;
    return engine.ask("notes", () => directory.read(store.notes));
  }

  async #read(names: readonly string[]): Promise<readonly (string | undefined)[]> {
    const { engine, store } = this.#latchkey;
    const texts: (string | undefined)[] = [];
    for (let start = 0; start < names.length; start += namesPerCall) {
      const part = names.slice(start, start + namesPerCall);
      const { notes } = await engine.ask("notes", () => store.notes.read(part));
      texts.push(...notes.map((note) => note?.value));
    }
    return texts;
  }
}

/** The coarsest that the steps can be made of. */
function resolutionFor({ windowMs, stepMs }: ActivityQuery): Resolution {
  const steps = windowMs / stepMs;
  const resolution = resolutions.findLast(
    (one) => stepMs % one.stepMs === 0 && windowMs <= one.windowMsMax && Number.isInteger(steps),
  );
  if (resolution !== undefined && steps >= 1) return resolution;
  throw new ConfigError(
    `activity cannot be shown for ${windowMs} ms in steps of ${stepMs} ms: steps are whole multiples of 10 s for up to ` +
      "an hour, of a minute for up to a day, and of 10 minutes for up to a week, and the window is a multiple of them",
  );
}

interface SheetName {
  readonly name: string;
  readonly start: number;
}

/** The notes in which something can be, of those that have told of themselves last. */
function sheetsOf(
  entries: readonly Entry[],
  resolution: Resolution,
  window: { readonly from: number; readonly now: number },
): readonly SheetName[] {
  const sheets: SheetName[] = [];
  for (const { id, startedAt, seenAt } of entries.slice(0, activityProcessesMax)) {
    const first = sheetStart(resolution, Math.max(window.from, startedAt));
    const last = Math.min(window.now, seenAt + 2 * entryMs);
    for (let start = first; start <= last; start += sheetMs(resolution)) {
      sheets.push({ name: noteNames.sheet(id, resolution, start), start });
    }
  }
  return sheets;
}

function processView(id: string, told: Readonly<Record<string, unknown>>, now: number): ProcessView {
  const { role, host, pid, startedAt, seenAt, intervalMs, workers } = told;
  return {
    id,
    role: String(role),
    host: String(host),
    pid: Number(pid),
    startedAt: Number(startedAt),
    seenAt: Number(seenAt),
    isAlive: now - Number(seenAt) < missedTurnsMax * Number(intervalMs) + graceMs,
    workers: Array.isArray(workers) ? (workers as WorkerView[]) : [],
  };
}

function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

const processMs = 3_600_000; // As long as their notes are kept.
const processesMax = 500;
const duplicatesMs = 86_400_000;
const duplicatesProcessesMax = 64; // Somebody waits for the answer, and these are some 8 KB each.
const activityProcessesMax = 500;
const namesPerCall = 100;
const missedTurnsMax = 3;
const graceMs = 2_000; // For a store that is slow for once.
