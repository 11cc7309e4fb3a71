import { type Amount, loanMs, type MeterAnswer, type MeterQuestion, type Taking } from "../../core/meter.ts";
import type { Limit } from "./options.ts";

/** Whether something is let in; `ask` if only the store can say. */
export type Taken = "granted" | "refused" | "ask";

/**
 * What one tenant may still do in this process under one limit. Spends what it was lent without asking anybody, keeps
 * count of what the others have to be told, and refuses by itself for as long as it is known that nothing is free.
 */
export class Allowance {
  limit: Limit;
  #credit: number;
  #creditUntil: number;
  #lent: Amount | undefined;
  #spentSinceAsked = 0;
  /** What nobody else knows of, by how long it lives. */
  #untold = new Map<number, number>();
  #waiting: Waiting[] = [];
  #used = 0;
  #refusesUntil = 0;
  #freeAt = 0;
  /** What was taken since it was last asked for more, and before, to guess what the next moments need. */
  #taken = 0;
  #askedAt: number;
  #ratePerMs = 0;

  constructor(limit: Limit, now: number) {
    this.limit = limit;
    this.#askedAt = now;
    this.#credit = startOf(limit);
    this.#creditUntil = now + loanMs;
  }

  /** What is granted has to be told: see `isDue`. */
  take(amount: number, ttlMs: number, now: number): Taken {
    if (now >= this.#creditUntil) this.#lapse(now);
    if (this.#credit >= amount && this.#waiting.length === 0) {
      this.charge(amount, ttlMs);
      return "granted";
    }
    return now < this.#refusesUntil ? "refused" : "ask";
  }

  /** Resolves when the store has said whether this one is let in. */
  wait(amount: number, ttlMs: number): Promise<boolean> {
    this.#taken += amount;
    return new Promise((answer) => this.#waiting.push({ amount, ttlMs, answer }));
  }

  /** Counts, whatever the limit says. */
  charge(amount: number, ttlMs: number): void {
    this.#credit -= amount;
    this.#taken += amount;
    this.#spentSinceAsked += amount;
    this.#tell(amount, ttlMs);
  }

  giveBack(amount: number, ttlMs: number): void {
    this.#credit += amount;
    this.#taken -= amount;
    this.#spentSinceAsked -= amount;
    this.#tell(-amount, ttlMs);
  }

  get isAwaited(): boolean {
    return this.#waiting.length > 0;
  }

  /** Whether the others should hear of it soon. */
  get isDue(): boolean {
    return this.#untold.size > 0;
  }

  /** Whether it is better to ask now than to have requests wait for it. */
  get isLow(): boolean {
    return this.#lent !== undefined && this.#credit * 2 < this.#lent.amount;
  }

  /** When the first of what is taken leaves, for those who are refused. */
  retryAfterMs(now: number): number {
    return Math.min(Math.max(this.#freeAt - now, retryAfterMsMin), retryAfterMsMax);
  }

  question(now: number): Asked {
    const elapsedMs = Math.max(now - this.#askedAt, demandMs / 2);
    this.#ratePerMs = Math.max(this.#taken / elapsedMs, this.#ratePerMs / 2);
    this.#taken = 0;
    this.#askedAt = now;
    this.#spentSinceAsked = 0;
    const spent = Array.from(this.#untold, ([ttlMs, amount]) => ({ ttlMs, amount }));
    this.#untold = new Map();
    const waiting = this.#waiting;
    this.#waiting = [];
    return {
      spent,
      waiting,
      returned: this.#lent,
      kept: now < this.#creditUntil ? Math.max(0, this.#credit) : 0,
      ahead: Math.max(1, Math.ceil(this.#ratePerMs * demandMs)),
    };
  }

  /** `now` is when the question was sent: what was lent cannot have begun earlier. */
  hear({ waiting }: Asked, { granted, lent, used, freeAfterMs }: MeterAnswer, now: number): void {
    this.#lent = lent;
    this.#used = used;
    this.#credit = (lent?.amount ?? 0) - this.#spentSinceAsked;
    this.#creditUntil = now + loanMs;
    if (granted < waiting.length) {
      this.#freeAt = now + freeAfterMs;
      this.#refusesUntil = now + Math.min(Math.max(freeAfterMs, this.#refusalMsMin), refusalMsMax);
    }
    waiting.forEach(({ answer }, index) => {
      answer(index < granted);
    });
  }

  /** A store that is asked each time something becomes free would be asked for nearly every request. */
  get #refusalMsMin(): number {
    return Math.min((this.limit.perMs ?? refusalMsMax) / 40, refusalMsMax);
  }

  #tell(amount: number, ttlMs: number): void {
    const untold = (this.#untold.get(ttlMs) ?? 0) + amount;
    if (untold === 0) this.#untold.delete(ttlMs);
    else this.#untold.set(ttlMs, untold);
  }

  /** What was lent has ended unspent. A tenant that is far from its limit may begin again without asking. */
  #lapse(now: number): void {
    this.#lent = undefined;
    this.#credit = this.#used * 2 <= this.limit.max ? startOf(this.limit) : 0;
    this.#creditUntil = now + loanMs;
  }
}

/** A question that is under way, with those who wait for its answer. */
export interface Asked extends MeterQuestion {
  readonly waiting: readonly Waiting[];
}

interface Waiting extends Taking {
  readonly answer: (isGranted: boolean) => void;
}

/** What each process lets in for a tenant that it knows nothing about, before it has asked. */
function startOf({ max }: Limit): number {
  return Math.floor(max / 100);
}

/** For how long what is lent should last: twice as long as it takes until the next telling. */
const demandMs = 500;

/** It may be free earlier than it was known to be, because others give back what they did not need. */
const refusalMsMax = 1000;

const retryAfterMsMin = 1;
const retryAfterMsMax = 24 * 3_600_000;
