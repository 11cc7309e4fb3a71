import { hostname } from "node:os";
import type { NoteWrite } from "../../core/notes.ts";
import type { LatchkeyEvent } from "../../engine/events.ts";
import { StoreClock } from "../../engine/limits/store-clock.ts";
import { type Cancel, randomName } from "../../engine/runtime.ts";
import type { Latchkey } from "../../latchkey.ts";
import { type ActivitySeries, activitySeries } from "../views.ts";
import { directory, entryMs } from "./directory.ts";
import { Duplicates } from "./duplicates.ts";
import { noteNames } from "./names.ts";
import { seriesOf } from "./series.ts";
import { type Resolution, resolutions, Sheet, sheetTtlMs } from "./sheet.ts";
import { WorkerHealth } from "./worker-health.ts";

/** What is written into one note, and what is known of what is there. */
interface Draft {
  readonly write: NoteWrite;
  written(version: string | undefined): void;
  refused(version: string | undefined): void;
}

interface OwnSheet {
  readonly sheet: Sheet;
  version: string | undefined;
  isChanged: boolean;
  writtenAt: number;
}

/**
 * Tells of this process in notes that all processes of a deployment can read: what its requests came to, how its workers
 * are, and that it lives. On the path of a request it counts, and nothing else; a note that cannot be written is written
 * with a later turn.
 */
export class Reporter {
  readonly id: string;
  role: string;
  readonly #latchkey: Latchkey;
  readonly #intervalMs: number;
  readonly #clock: StoreClock;
  /** What has been counted since it was last put down in the sheets. */
  readonly #counted = Object.fromEntries(activitySeries.map((series) => [series, 0])) as Record<
    ActivitySeries,
    number
  >;
  #hasCounted = false;
  /** The store's time when somebody last looked. */
  #now = 0;
  readonly #sheets = new Map<Resolution, OwnSheet[]>(resolutions.map((resolution) => [resolution, []]));
  readonly #duplicates = new Duplicates();
  readonly #workers = new WorkerHealth();
  readonly #unsubscribe: () => void;
  #startedAt: number | undefined;
  #enteredAt = Number.NEGATIVE_INFINITY;
  #processVersion: string | undefined;
  #duplicatesVersion: string | undefined;
  #versions = 0;
  #cancelTick: Cancel | undefined;
  #cancelTurn: Cancel | undefined;
  #turn: Promise<void> | undefined;
  #isStopped = false;

  constructor(latchkey: Latchkey, options: { readonly role: string; readonly intervalMs: number }) {
    const { runtime } = latchkey.engine;
    this.id = randomName(runtime);
    this.role = options.role;
    this.#intervalMs = options.intervalMs;
    this.#latchkey = latchkey;
    this.#clock = new StoreClock(runtime);
    this.#unsubscribe = latchkey.subscribe((event) => this.#listen(event));
    this.#tickLater();
    this.#startTurn();
  }

  now(): number {
    return Math.round(this.#clock.now());
  }

  /** Tells what is left, and that this process is gone. */
  async stop(): Promise<void> {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#unsubscribe();
    this.#cancelTick?.();
    this.#cancelTurn?.();
    await this.#turn;
    this.#putDown();
    await this.#tell({ isLast: true }).catch(() => {});
  }

  get #isClosed(): boolean {
    return this.#latchkey.engine.isClosed;
  }

  #listen(event: LatchkeyEvent): void {
    const series = seriesOf(event);
    if (series !== undefined) {
      this.#counted[series] += 1;
      this.#hasCounted = true;
    }
    if (event.type === "reserved") this.#duplicates.add(event);
    else if (event.type === "worker") this.#workers.round(event.worker, event.counts, this.#clock.now());
    else if (event.type === "worker_error")
      this.#workers.failed(event.worker, event.error, this.#clock.now());
  }

  /** What was counted within a second counts as of its end: so nobody has to look at a clock to count. */
  #tickLater(): void {
    const { runtime } = this.#latchkey.engine;
    const tick = () => {
      // Nobody stopped it, and there is no store any more to tell anything.
      if (this.#isClosed) return void this.stop();
      this.#putDown();
      this.#tickLater();
    };
    this.#cancelTick = runtime.setTimer(tick, tickMs, { background: true });
  }

  #putDown(): void {
    if (!this.#clock.isKnown) return;
    this.#now = this.now();
    this.#duplicates.putDown(this.#now);
    if (!this.#hasCounted) return;
    this.#hasCounted = false;
    for (const series of activitySeries) {
      const count = this.#counted[series];
      if (count === 0) continue;
      this.#counted[series] = 0;
      for (const own of this.#currentSheets()) {
        own.sheet.add(series, this.#now, count);
        own.isChanged = true;
      }
    }
  }

  #currentSheets(): readonly OwnSheet[] {
    return resolutions.map((resolution) => {
      const sheets = this.#sheets.get(resolution) ?? [];
      const last = sheets.at(-1);
      if (last?.sheet.holds(this.#now)) return last;
      const sheet = Sheet.at(resolution, this.#now);
      const own = { sheet, version: undefined, isChanged: false, writtenAt: Number.NEGATIVE_INFINITY };
      // The one before stays until it is written, but a store that is down for hours must not fill the memory.
      this.#sheets.set(resolution, [...sheets.slice(1 - sheetsMax), own]);
      return own;
    });
  }

  #startTurn(): void {
    this.#turn = this.#tell({ isLast: false })
      // The engine has told of it, and the next turn comes.
      .catch(() => {})
      .then(() => {
        this.#turn = undefined;
        if (this.#isStopped) return;
        const { runtime } = this.#latchkey.engine;
        // Not in step with the others, which were started together.
        const ms = this.#intervalMs * (0.9 + 0.2 * runtime.random());
        this.#cancelTurn = runtime.setTimer(() => this.#startTurn(), ms, { background: true });
      });
  }

  async #tell({ isLast }: { readonly isLast: boolean }): Promise<void> {
    if (this.#isClosed || this.#latchkey.health().breaker === "open") return;
    await this.#enter(isLast);
    if (this.#startedAt === undefined) return;
    const drafts = [this.#processDraft(isLast), this.#duplicatesDraft(), ...this.#sheetDrafts(isLast)].filter(
      (draft) => draft !== undefined,
    );
    const { engine, store } = this.#latchkey;
    const askedAt = engine.runtime.now();
    const { answers, now } = await engine.ask("notes", () =>
      store.notes.write(drafts.map(({ write }) => write)),
    );
    this.#clock.heard(now, askedAt);
    drafts.forEach(({ write, written, refused }, index) => {
      const answer = answers[index];
      // Nobody else writes these: what is there is what an unanswered write has left.
      if (answer?.kind === "conflict") refused(answer.note?.version);
      else written(write.note?.version);
    });
  }

  /** Gets the store's clock, and this process onto the list of all of them. */
  async #enter(isLast: boolean): Promise<void> {
    const { engine, store } = this.#latchkey;
    const { runtime } = engine;
    if (!isLast && runtime.now() - this.#enteredAt < entryMs) return;
    const askedAt = runtime.now();
    if (!this.#clock.isKnown) {
      const { now } = await engine.ask("notes", () => store.notes.read([noteNames.directory]));
      this.#clock.heard(now, askedAt);
    }
    this.#startedAt ??= this.now();
    this.#now = this.now();
    const own = { id: this.id, startedAt: this.#startedAt };
    const entered = await engine.ask("notes", async () => ({
      at: await directory.enter(store.notes, own, () => this.#newVersion()),
    }));
    if (entered.at !== undefined) this.#enteredAt = runtime.now();
  }

  #processDraft(isLast: boolean): Draft | undefined {
    if (isLast && this.#processVersion === undefined) return undefined;
    const set = (version: string | undefined) => {
      this.#processVersion = version;
    };
    const value = JSON.stringify({
      role: this.role,
      host: hostname(),
      pid: process.pid,
      startedAt: this.#startedAt,
      seenAt: this.now(),
      intervalMs: this.#intervalMs,
      workers: this.#workers.views,
    });
    const note = isLast ? undefined : { value, version: this.#newVersion() };
    const write = {
      name: noteNames.process(this.id),
      expected: this.#processVersion,
      note,
      ttlMs: processTtlMs,
    };
    return { write, written: set, refused: set };
  }

  #duplicatesDraft(): Draft | undefined {
    if (this.#duplicates.isTold) return undefined;
    const { text: value, changes } = this.#duplicates;
    const note = { value, version: this.#newVersion() };
    return {
      write: {
        name: noteNames.duplicates(this.id),
        expected: this.#duplicatesVersion,
        note,
        ttlMs: duplicatesTtlMs,
      },
      written: (version) => {
        this.#duplicatesVersion = version;
        this.#duplicates.told(changes);
      },
      refused: (version) => {
        this.#duplicatesVersion = version;
      },
    };
  }

  #sheetDrafts(isLast: boolean): readonly Draft[] {
    const now = this.#latchkey.engine.runtime.now();
    const drafts: Draft[] = [];
    for (const [resolution, sheets] of this.#sheets) {
      const current = sheets.at(-1);
      for (const own of sheets) {
        const isDue = isLast || own !== current || now - own.writtenAt >= resolution.writeMs;
        if (own.isChanged && isDue) drafts.push(this.#sheetDraft(own, now));
      }
      this.#sheets.set(
        resolution,
        sheets.filter((own) => own === current || own.isChanged),
      );
    }
    return drafts;
  }

  #sheetDraft(own: OwnSheet, now: number): Draft {
    const { resolution, from } = own.sheet;
    const value = own.sheet.text;
    return {
      write: {
        name: noteNames.sheet(this.id, resolution, from),
        expected: own.version,
        note: { value, version: this.#newVersion() },
        ttlMs: sheetTtlMs(resolution),
      },
      written(version) {
        own.version = version;
        own.writtenAt = now;
        // What was counted meanwhile is yet to be told.
        own.isChanged = own.sheet.text !== value;
      },
      refused(version) {
        own.version = version;
      },
    };
  }

  #newVersion(): string {
    this.#versions += 1;
    return `${this.id}-${this.#versions}`;
  }
}

const tickMs = 1_000; // A tenth of the finest step.
const sheetsMax = 3;
const processTtlMs = 3_600_000; // A process that has died is shown for an hour.
const duplicatesTtlMs = 86_400_000;
