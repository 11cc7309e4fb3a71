import { ConfigError, StoreRefusedError } from "../core/errors.ts";
import type { BreakerState, Events } from "./events.ts";
import type { Runtime } from "./runtime.ts";

export interface BreakerOptions {
  /** Opens when this share of the calls has failed; half by default. */
  readonly failureShare?: number;
  /** A call that takes longer counts as slow; half of `storeTimeoutMs` by default. */
  readonly slowMs?: number;
  /** Opens when this share of the calls was slow; 0.8 by default. */
  readonly slowShare?: number;
  /** Never opens because of fewer calls; 20 by default. */
  readonly minCalls?: number;
  /** Calls are counted for this long; 10 s by default. */
  readonly windowMs?: number;
  /** Nothing is asked for this long; 5 s by default, and longer each time that the store has not recovered. */
  readonly openMs?: number;
  /** So many calls have to succeed before everything is let through again; 3 by default. */
  readonly probes?: number;
}

/** What a breaker stands at, and since when on the process's own clock. */
export interface BreakerReading {
  readonly state: BreakerState;
  readonly since: number;
}

/**
 * Stops asking a store that is sick: requests that would wait for nothing are answered at once, and the store is left
 * alone to recover. It only sees calls that begin something; what ran is told whatever it stands at.
 */
export class Breaker {
  readonly #runtime: Runtime;
  readonly #events: Events;
  readonly #options: Required<BreakerOptions>;
  readonly #slots: Slot[];
  readonly #slotMs: number;
  #state: BreakerState = "closed";
  #since: number;
  /** Of the state: what was asked under an earlier one says nothing about this one. */
  #generation = 1;
  #openUntil = 0;
  #openMs: number;
  #probesLeft = 0;
  #probesDone = 0;

  constructor(
    options: BreakerOptions,
    host: { readonly runtime: Runtime; readonly events: Events; readonly storeTimeoutMs: number },
  ) {
    this.#options = resolveBreaker(options, host.storeTimeoutMs);
    this.#runtime = host.runtime;
    this.#events = host.events;
    this.#openMs = this.#options.openMs;
    this.#since = host.runtime.now();
    this.#slotMs = this.#options.windowMs / slotCount;
    this.#slots = Array.from({ length: slotCount }, () => ({ number: -1, calls: 0, failures: 0, slow: 0 }));
  }

  get reading(): BreakerReading {
    return { state: this.#state, since: this.#since };
  }

  /** Whether everything is let through: whoever is not missed should not take a probe's place. */
  get isClosed(): boolean {
    return this.#state === "closed";
  }

  /** 0 if the store is not to be asked; otherwise what has to be said with the outcome. */
  enter(): number {
    if (this.#state === "closed") return this.#generation;
    if (this.#state === "open") {
      if (this.#runtime.now() < this.#openUntil) return 0;
      this.#become("half-open", "the time is over for which nothing was asked");
      this.#probesLeft = this.#options.probes;
      this.#probesDone = 0;
    }
    if (this.#probesLeft === 0) return 0;
    this.#probesLeft -= 1;
    return this.#generation;
  }

  succeeded(generation: number, ms: number, now = this.#runtime.now()): void {
    if (generation !== this.#generation) return;
    const isSlow = ms >= this.#options.slowMs;
    if (this.#state === "half-open") {
      this.#probesDone += 1;
      if (isSlow) this.#open(`a call took ${Math.round(ms)} ms while the breaker was half-open`);
      else if (this.#probesDone === this.#options.probes) this.#close();
      return;
    }
    const slot = this.#slot(now);
    slot.calls += 1;
    if (!isSlow) return;
    slot.slow += 1;
    this.#judge();
  }

  failed(generation: number, ms: number, error: unknown): void {
    if (generation !== this.#generation) return;
    const isProbe = this.#state === "half-open";
    if (isOwnFault(error)) {
      // Nothing was learned, so another one may try.
      if (isProbe) this.#probesLeft += 1;
      return;
    }
    if (isProbe) {
      this.#open("a call failed while the breaker was half-open");
      return;
    }
    const slot = this.#slot(this.#runtime.now());
    slot.calls += 1;
    slot.failures += 1;
    if (ms >= this.#options.slowMs) slot.slow += 1;
    this.#judge();
  }

  /** For those who were not let through; they must not all come back at once. */
  retryAfterMs(): number {
    const left = this.#state === "open" ? this.#openUntil - this.#runtime.now() : 0;
    return Math.max(left, retryAfterMsMin) * (1 + this.#runtime.random() / 2);
  }

  #judge(): void {
    const { failureShare, slowShare, minCalls } = this.#options;
    const oldest = this.#slotNumber(this.#runtime.now()) - slotCount;
    let calls = 0;
    let failures = 0;
    let slow = 0;
    for (const slot of this.#slots) {
      if (slot.number <= oldest) continue;
      calls += slot.calls;
      failures += slot.failures;
      slow += slot.slow;
    }
    if (calls < minCalls) return;
    if (failures >= calls * failureShare) this.#open(`${failures} of ${calls} calls failed`);
    else if (slow >= calls * slowShare) this.#open(`${slow} of ${calls} calls were slow`);
  }

  #open(reason: string): void {
    // A store that was well in between is met with the first patience again.
    if (this.#state === "closed") this.#openMs = this.#options.openMs;
    else this.#openMs = Math.min(this.#openMs * (1.5 + this.#runtime.random() / 2), this.#openMsMax);
    this.#openUntil = this.#runtime.now() + this.#openMs;
    this.#become("open", reason);
  }

  /** Never below what was asked for. */
  get #openMsMax(): number {
    return Math.max(openMsMax, this.#options.openMs);
  }

  #close(): void {
    for (const slot of this.#slots) slot.number = -1;
    this.#become("closed", `${this.#options.probes} calls in a row succeeded`);
  }

  #become(state: BreakerState, reason: string): void {
    this.#state = state;
    this.#since = this.#runtime.now();
    this.#generation += 1;
    this.#events.emit({ type: "breaker", state, reason });
  }

  #slotNumber(now: number): number {
    return Math.floor(now / this.#slotMs);
  }

  #slot(now: number): Slot {
    const number = this.#slotNumber(now);
    const slot = this.#slots[number % slotCount] as Slot;
    if (slot.number !== number) {
      slot.number = number;
      slot.calls = 0;
      slot.failures = 0;
      slot.slow = 0;
    }
    return slot;
  }
}

interface Slot {
  number: number;
  calls: number;
  failures: number;
  slow: number;
}

/** The window moves on by a tenth at a time. */
const slotCount = 10;

const openMsMax = 30_000;

const retryAfterMsMin = 1000;

/** The store is well, and has said so: this one request, or this configuration, is what it cannot serve. */
function isOwnFault(error: unknown): boolean {
  return error instanceof StoreRefusedError || error instanceof ConfigError;
}

function resolveBreaker(options: BreakerOptions, storeTimeoutMs: number): Required<BreakerOptions> {
  const {
    failureShare = 0.5,
    slowMs = storeTimeoutMs / 2,
    slowShare = 0.8,
    minCalls = 20,
    windowMs = 10_000,
    openMs = 5_000,
    probes = 3,
  } = options;
  const complaints: string[] = [];
  const isShare = (share: number) => typeof share === "number" && share > 0 && share <= 1;
  const isTime = (ms: number) => typeof ms === "number" && ms > 0 && Number.isFinite(ms);
  const isCount = (count: number) => Number.isSafeInteger(count) && count > 0;
  const check = (name: string, value: number, isGood: boolean, rule: string) => {
    if (!isGood) complaints.push(`${name} is ${value} and must be ${rule}`);
  };
  check("failureShare", failureShare, isShare(failureShare), "above 0 and at most 1");
  check("slowMs", slowMs, isTime(slowMs), "a number of milliseconds above 0");
  check("slowShare", slowShare, isShare(slowShare), "above 0 and at most 1");
  check("minCalls", minCalls, isCount(minCalls), "a whole number above 0");
  check("windowMs", windowMs, isTime(windowMs), "a number of milliseconds above 0");
  check("openMs", openMs, isTime(openMs), "a number of milliseconds above 0");
  check("probes", probes, isCount(probes), "a whole number above 0");
  if (complaints.length > 0) throw new ConfigError(`the breaker cannot work: ${complaints.join("; ")}`);
  return { failureShare, slowMs, slowShare, minCalls, windowMs, openMs, probes };
}
