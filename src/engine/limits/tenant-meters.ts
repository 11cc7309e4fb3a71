import { emptyMeter, exchange, type MeterAnswer, type Taking } from "../../core/meter.ts";
import { type Meters, metersOf } from "../../core/meter-text.ts";
import type { Note } from "../../core/notes.ts";
import type { Used } from "../recency.ts";
import { Allowance, type Asked } from "./allowance.ts";
import type { Limit } from "./options.ts";

/** What is counted. A worker's visits are counted apart, so that neither they nor a client's use up the other's. */
export type MeterName = "new" | "looks" | "claims" | "active" | "bytes";

/** What one tenant may do in this process, and what it is known to have done in all of them. */
export class TenantMeters implements Used<TenantMeters> {
  readonly tenantScope: string;
  older: TenantMeters | undefined;
  newer: TenantMeters | undefined;
  /** When its limits were last looked up. */
  limitedAt = Number.NEGATIVE_INFINITY;
  readonly #allowances = new Map<MeterName, Allowance>();
  /** What all processes share, as this one knows it. */
  #shared: { readonly version: string | undefined; readonly meters: Meters } = unknownMeters;
  /** What it would be if nobody else existed; as long as the others cannot be heard. */
  #alone: Meters | undefined;
  /** What was let in since then. */
  #unheard: Partial<Record<MeterName, readonly Taking[]>> = {};
  #aloneSince = 0;
  /** Written without an answer, each with what it would have told. */
  #doubts: { readonly version: string; readonly told: Questions }[] = [];

  constructor(tenantScope: string) {
    this.tenantScope = tenantScope;
  }

  allowance(name: MeterName): Allowance | undefined {
    return this.#allowances.get(name);
  }

  /** The limits of a tenant may change while it is known. */
  setLimit(name: MeterName, limit: Limit | undefined, now: number): void {
    const known = this.#allowances.get(name);
    if (limit === undefined) {
      // Somebody may wait for an answer.
      if (known !== undefined && !known.isAwaited) this.#allowances.delete(name);
    } else if (known === undefined) this.#allowances.set(name, new Allowance(limit, now));
    else known.limit = limit;
  }

  get isAwaited(): boolean {
    return this.#some((allowance) => allowance.isAwaited);
  }

  get hasNews(): boolean {
    return this.#some((allowance) => allowance.isDue || allowance.isAwaited);
  }

  get version(): string | undefined {
    return this.#shared.version;
  }

  questions(now: number): Questions {
    const questions: Questions = new Map();
    for (const [name, allowance] of this.#allowances) questions.set(name, allowance.question(now));
    return questions;
  }

  /** What the questions make of what all processes share. */
  next(questions: Questions, storeNow: number): Next {
    return this.#next(this.#shared.meters, questions, storeNow, (name, { perMs }) => {
      // What was let in longer ago than a window lasts does not count any more.
      if (perMs !== undefined && storeNow - this.#aloneSince > perMs) return [];
      return this.#unheard[name] ?? [];
    });
  }

  written(version: string, next: Next, questions: Questions, askedAt: number): void {
    this.#shared = { version, meters: next.meters };
    this.#alone = undefined;
    this.#unheard = {};
    this.#doubts = [];
    this.#hear(next, questions, askedAt);
  }

  /** Somebody was faster, or this process itself was, and did not hear it. */
  found(note: Note | undefined): void {
    this.#shared = { version: note?.version, meters: note === undefined ? {} : metersOf(note.value) };
    this.#alone = undefined;
    const own = this.#doubts.find(({ version }) => version === note?.version);
    if (own === undefined) return;
    this.#doubts = [];
    for (const [name, { spent }] of own.told) {
      const taken = spent.map(({ amount, ttlMs }) => ({ amount: -amount, ttlMs }));
      this.#unheard[name] = [...(this.#unheard[name] ?? []), ...taken];
    }
  }

  /** The others cannot be heard: this process goes on by what it last knew, as if it were alone. */
  decideAlone(questions: Questions, storeNow: number, askedAt: number, version: string | undefined): void {
    if (Object.keys(this.#unheard).length === 0) this.#aloneSince = storeNow;
    const next =
      this.#alone === undefined
        ? this.next(questions, storeNow)
        : this.#next(this.#alone, questions, storeNow, () => []);
    this.#alone = next.meters;
    const told: Questions = new Map();
    for (const [name, question] of questions) {
      const granted = question.waiting.slice(0, next.answers.get(name)?.granted ?? 0);
      const spent = merged([...(this.#unheard[name] ?? []), ...question.spent, ...granted]);
      this.#unheard[name] = spent;
      told.set(name, { ...question, spent });
    }
    if (version !== undefined) this.#doubts = [...this.#doubts, { version, told }].slice(-doubtsMax);
    this.#hear(next, questions, askedAt);
  }

  #next(
    meters: Meters,
    questions: Questions,
    now: number,
    unheard: (name: MeterName, limit: Limit) => readonly Taking[],
  ): Next {
    const answers = new Map<MeterName, MeterAnswer>();
    const changed: Record<string, Meters[string]> = { ...meters };
    for (const [name, question] of questions) {
      const limit = this.#allowances.get(name)?.limit;
      if (limit === undefined) continue;
      const spent = [...unheard(name, limit), ...question.spent];
      const terms = { now, max: limit.max, ttlMsMax: limit.perMs ?? Number.POSITIVE_INFINITY };
      const answer = exchange(meters[name] ?? emptyMeter, { ...question, spent }, terms);
      answers.set(name, answer);
      changed[name] = answer.meter;
    }
    return { meters: changed, answers };
  }

  #hear({ answers }: Next, questions: Questions, askedAt: number): void {
    for (const [name, question] of questions) {
      const answer = answers.get(name);
      const allowance = this.#allowances.get(name);
      // The limit may have been lifted while this was on its way: whoever waits for it is let in.
      if (answer !== undefined && allowance !== undefined) allowance.hear(question, answer, askedAt);
      else for (const { answer: tell } of question.waiting) tell(true);
    }
  }

  #some(check: (allowance: Allowance) => boolean): boolean {
    for (const allowance of this.#allowances.values()) if (check(allowance)) return true;
    return false;
  }
}

export type Questions = Map<MeterName, Asked>;

export interface Next {
  readonly meters: Meters;
  readonly answers: ReadonlyMap<MeterName, MeterAnswer>;
}

function merged(takings: readonly Taking[]): readonly Taking[] {
  const byTtl = new Map<number, number>();
  for (const { amount, ttlMs } of takings) byTtl.set(ttlMs, (byTtl.get(ttlMs) ?? 0) + amount);
  return Array.from(byTtl, ([ttlMs, amount]) => ({ ttlMs, amount }));
}

const unknownMeters = { version: undefined, meters: {} };

/** One of them at most was written: all were made from the same version. */
const doubtsMax = 4;
