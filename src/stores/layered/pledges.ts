import { encodeEntry, placeOf, wantedName } from "./entry.ts";
import type { Execution, Executions } from "./executions.ts";
import type { Front } from "./front.ts";
import type { Standing } from "./standing.ts";
import { type Clocks, surelyPassedAfter } from "./truth-clock.ts";

/**
 * Lets other processes know through the front that a request is still being executed here.
 *
 * Nobody can rely on something being gone from the front: it may come back from a snapshot, or from a replica that is
 * behind. So what is written there stays true for as long as it says: the owner pledges not to end the execution before
 * a moment of the truth's clock, and waits for that moment if it is done earlier. It is done only where somebody has asked,
 * and only for a small part of the time that the execution has taken already.
 */
export class Pledges {
  readonly #front: Front;
  readonly #standing: Standing;
  readonly #executions: Executions;
  readonly #clocks: Clocks;
  #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(parts: {
    readonly front: Front;
    readonly standing: Standing;
    readonly executions: Executions;
    readonly clocks: Clocks;
  }) {
    this.#front = parts.front;
    this.#standing = parts.standing;
    this.#executions = parts.executions;
    this.#clocks = parts.clocks;
  }

  /** An execution has begun, and may take long. */
  watch(): void {
    if (this.#timer !== undefined || this.#isClosed) return;
    this.#timer = setTimeout(() => this.#round(), roundMs);
    this.#timer.unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  #round(): void {
    this.#timer = undefined;
    if (this.#executions.size === 0) return;
    const now = this.#clocks.steady();
    this.#executions.forgetLost(now);
    for (const execution of this.#executions.all()) {
      if (now - execution.startedAt < longMs || now < execution.lookAt) continue;
      // Nothing could be pledged for it.
      if (execution.endings > 0 || execution.leaseEndsAt === undefined) continue;
      // Looking more often than a pledge would last is of no use, and many who take long would keep Redis busy.
      execution.lookAt = now + Math.max(lookMs, (now - execution.startedAt) / shareOfAge);
      void this.#look(execution);
    }
    this.watch();
  }

  async #look(execution: Execution): Promise<void> {
    const known = this.#standing.current();
    if (known === undefined) return;
    const place = placeOf(known.generation, execution);
    if ((await this.#front.get(wantedName(place))) === undefined) return;
    // From here on in one go: the execution must not end between looking at it and making the pledge.
    const { leaseEndsAt, endings } = execution;
    if (leaseEndsAt === undefined || endings > 0) return;
    const now = this.#clocks.steady();
    const from = known.clock.earliest();
    const pledgedMs = Math.min((now - execution.startedAt) / shareOfAge, pledgeMsMax, leaseEndsAt - from);
    if (pledgedMs < pledgeMsMin) return;
    execution.pledgedUntil = now + surelyPassedAfter(pledgedMs);
    const pledge = encodeEntry(place, { kind: "pledge", from, until: from + pledgedMs, leaseEndsAt });
    this.#front.put(place.name, pledge, pledgedMs);
  }
}

/** What is to be told to other processes for how long: they look for it, and the owner looks for that. */
export const wantedMs = 2_000;

/** Resolves when nothing that was pledged stands in the way of the execution's end. */
export async function pledgeKept(execution: Execution, clocks: Clocks): Promise<void> {
  for (;;) {
    const leftMs = execution.pledgedUntil - clocks.steady();
    if (leftMs <= 0) return;
    await new Promise((resolve) => void setTimeout(resolve, leftMs));
  }
}

/** What is shorter is over before anybody would look. */
const longMs = 500;
const roundMs = 50;
const lookMs = 50;

/** Somebody has to wait for the outcome: by a twentieth longer at most. */
const shareOfAge = 20;
export const pledgeMsMax = 500;
/** Below this the two bounds of the truth's clock leave nothing of it. */
const pledgeMsMin = 10;
