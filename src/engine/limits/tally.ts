import { StoreError } from "../../core/errors.ts";
import { lastEnd, metersText } from "../../core/meter-text.ts";
import type { Notes, NoteWrite } from "../../core/notes.ts";
import { Deadlines } from "../deadlines.ts";
import { type Cancel, type Runtime, randomName } from "../runtime.ts";
import { StoreClock } from "./store-clock.ts";
import type { Next, Questions, TenantMeters } from "./tenant-meters.ts";

/**
 * Tells the other processes what this one has let in, and brings back how much is left: by notes that all share, one
 * for each tenant, each written from the version that was read. One exchange is under way at a time, and carries
 * everything that has gathered meanwhile, so the number of exchanges does not grow with the number of requests.
 */
export class Tally {
  readonly #notes: Notes;
  readonly #runtime: Runtime;
  readonly #clock: StoreClock;
  readonly #deadlines: Deadlines;
  readonly #onError: (error: unknown) => void;
  readonly #mayAsk: () => boolean;
  readonly #processName: string;
  #writes = 0;
  #due = new Set<TenantMeters>();
  #isUnderWay = false;
  #underWay: Promise<void> | undefined;
  /** The store did not answer the last time that it was asked. */
  #isDeaf = false;
  #isProbing = false;
  #cancelTimer: Cancel | undefined;
  #aloneUntil = Number.NEGATIVE_INFINITY;

  constructor(options: {
    readonly notes: Notes;
    readonly runtime: Runtime;
    readonly storeTimeoutMs: number;
    /** False while the store is known not to answer. */
    readonly mayAsk: () => boolean;
    readonly onError: (error: unknown) => void;
  }) {
    this.#notes = options.notes;
    this.#runtime = options.runtime;
    this.#clock = new StoreClock(options.runtime);
    this.#deadlines = new Deadlines(options.runtime, Math.min(options.storeTimeoutMs, patienceMs));
    this.#mayAsk = options.mayAsk;
    this.#onError = options.onError;
    this.#processName = randomName(options.runtime);
  }

  /** The others should hear of this tenant before long. */
  soon(tenant: TenantMeters): void {
    this.#due.add(tenant);
    if (this.#isUnderWay || this.#cancelTimer !== undefined) return;
    this.#cancelTimer = this.#runtime.setTimer(() => this.#start(), tellingMs, { background: true });
  }

  /** Somebody waits, or is about to. What else happens in this turn goes along. */
  now(tenant: TenantMeters): void {
    this.#due.add(tenant);
    if (!this.#isUnderWay) this.#start();
  }

  /** Tells what has not been told, as long as the store listens. */
  async flush(): Promise<void> {
    const until = this.#runtime.now() + patienceMs;
    while ((this.#isUnderWay || this.#due.size > 0) && this.#runtime.now() < until) {
      this.#start();
      await this.#underWay;
    }
  }

  isBusyWith(tenant: TenantMeters): boolean {
    return this.#due.has(tenant);
  }

  close(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#deadlines.close();
  }

  #start(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    if (this.#isUnderWay) return;
    this.#isUnderWay = true;
    this.#underWay = Promise.resolve().then(() => this.#exchange());
  }

  async #exchange(): Promise<void> {
    const batch = this.#takeBatch();
    const isMoreDue = this.#due.size > 0;
    const now = this.#runtime.now();
    const asked = batch.map((tenant): Asked => ({ tenant, questions: tenant.questions(now) }));
    await this.#ask(asked);
    this.#isUnderWay = false;
    for (const tenant of batch) if (tenant.hasNews) this.#due.add(tenant);
    const due = [...this.#due];
    const [first] = due;
    if (isMoreDue || due.some((tenant) => tenant.isAwaited)) this.#start();
    else if (first !== undefined) this.soon(first);
  }

  /** Those for whom somebody waits go first. */
  #takeBatch(): readonly TenantMeters[] {
    const due = [...this.#due].sort((a, b) => Number(b.isAwaited) - Number(a.isAwaited));
    const batch = due.slice(0, tenantsPerExchange);
    for (const tenant of batch) this.#due.delete(tenant);
    return batch;
  }

  /** Tenants that somebody has begun to wait for meanwhile. */
  #takeAwaited(left: readonly Asked[]): readonly Asked[] {
    const isUnderWay = new Set(left.map(({ tenant }) => tenant));
    const now = this.#runtime.now();
    const awaited: Asked[] = [];
    for (const tenant of this.#due) {
      if (left.length + awaited.length >= tenantsPerExchange) break;
      if (!tenant.isAwaited || isUnderWay.has(tenant)) continue;
      this.#due.delete(tenant);
      awaited.push({ tenant, questions: tenant.questions(now) });
    }
    return awaited;
  }

  async #ask(asked: readonly Asked[]): Promise<void> {
    let left: readonly Asked[] = asked;
    if (this.#isDeaf) this.#probe();
    else if (this.#mayAsk()) {
      try {
        if (!this.#clock.isKnown) await this.#read(left);
        const until = this.#runtime.now() + patienceMs;
        for (let attempt = 0; left.length > 0 && this.#runtime.now() < until; attempt += 1) {
          if (attempt > 1) await this.#pause(attempt);
          // Nobody waits for the tenant that others are faster at, but those of that tenant.
          if (attempt > 0) left = [...left, ...this.#takeAwaited(left)];
          left = await this.#write(left);
        }
      } catch (error) {
        this.#failed(error);
      }
    }
    // Nobody is held up because a counter cannot be reached.
    for (const { tenant, questions, written, askedAt } of left) {
      tenant.decideAlone(questions, this.#clock.now(), askedAt ?? this.#runtime.now(), written);
    }
  }

  #failed(error: unknown): void {
    this.#isDeaf = true;
    this.#aloneUntil = this.#runtime.now() + aloneMs;
    this.#onError(error);
  }

  /** Asks a store that did not answer something that nobody waits for; with any answer it is heard again. */
  #probe(): void {
    if (this.#isProbing || !this.#mayAsk() || this.#runtime.now() < this.#aloneUntil) return;
    this.#isProbing = true;
    const askedAt = this.#runtime.now();
    this.#writes += 1;
    const note = { value: "probe", version: `${this.#processName}-${this.#writes}` };
    const name = `limits-probe:${this.#processName}`;
    Promise.resolve()
      .then(() => this.#within(this.#notes.write([{ name, expected: undefined, note, ttlMs: ttlMarginMs }])))
      .then(({ now }) => {
        this.#clock.heard(now, askedAt);
        this.#isDeaf = false;
      })
      .catch((error: unknown) => this.#failed(error))
      .finally(() => {
        this.#isProbing = false;
      });
  }

  #pause(attempt: number): Promise<void> {
    const ms = this.#runtime.random() * Math.min(2 ** attempt, pauseMsMax);
    return new Promise((resolve) => void this.#runtime.setTimer(resolve, ms));
  }

  async #read(asked: readonly Asked[]): Promise<void> {
    const askedAt = this.#runtime.now();
    const { notes, now } = await this.#within(this.#notes.read(asked.map(({ tenant }) => nameOf(tenant))));
    this.#clock.heard(now, askedAt);
    asked.forEach(({ tenant }, index) => {
      tenant.found(notes[index]);
    });
  }

  /** Answers with those for whom somebody was faster. */
  async #write(asked: readonly Asked[]): Promise<readonly Asked[]> {
    const askedAt = this.#runtime.now();
    const storeNow = this.#clock.now();
    const drafts = asked.map((one) => {
      const next = one.tenant.next(one.questions, storeNow);
      this.#writes += 1;
      one.written = `${this.#processName}-${this.#writes}`;
      one.askedAt = askedAt;
      return { one, next, version: one.written };
    });
    const writes = drafts.map(({ one, next, version }) => writeOf(one.tenant, next, version, storeNow));
    const { answers, now } = await this.#within(this.#notes.write(writes));
    this.#clock.heard(now, askedAt);
    const left: Asked[] = [];
    drafts.forEach(({ one, next, version }, index) => {
      const answer = answers[index];
      one.written = undefined;
      // A conflict with what it has written itself: an earlier answer was lost.
      if (answer?.kind === "written" || answer?.note?.version === version) {
        one.tenant.written(version, next, one.questions, askedAt);
      } else {
        one.tenant.found(answer?.note);
        left.push(one);
      }
    });
    return left;
  }

  async #within<T>(call: Promise<T>): Promise<T> {
    const answer = await this.#deadlines.within(call);
    if (answer === undefined)
      throw new StoreError("the store did not answer in time about the limits of tenants");
    return answer;
  }
}

interface Asked {
  readonly tenant: TenantMeters;
  readonly questions: Questions;
  /** The version that was written and not answered for, yet or any more. */
  written?: string | undefined;
  askedAt?: number;
}

function writeOf(tenant: TenantMeters, { meters }: Next, version: string, storeNow: number): NoteWrite {
  const value = metersText(meters);
  const ttlMs = Math.max(lastEnd(meters) - storeNow, 0) + ttlMarginMs;
  return {
    name: nameOf(tenant),
    expected: tenant.version,
    note: { value, version },
    ...(Number.isFinite(ttlMs) ? { ttlMs: Math.ceil(ttlMs) } : {}),
  };
}

/** Removing the note of a tenant lets all of its counters begin anew. */
export function limitsNoteName(tenantScope: string): string {
  return `limits:${tenantScope}`;
}

function nameOf({ tenantScope }: TenantMeters): string {
  return limitsNoteName(tenantScope);
}

/** How old what others know of this process may be. */
const tellingMs = 250;

/** A counter is not worth waiting for: after this, the process decides by itself. */
const patienceMs = 1000;

/** How long it then leaves the store alone. */
const aloneMs = 1000;

/** Each time that all processes write at once, one of them is first; without chance it would always be the same. */
const pauseMsMax = 30;

const tenantsPerExchange = 100;

/** Clocks are only known roughly, and a note that is forgotten too early forgets what was taken. */
const ttlMarginMs = 1000;
