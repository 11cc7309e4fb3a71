import { isPending } from "../core/pending.ts";
import { keepsRequest } from "../core/policy.ts";
import type { RecordId } from "../core/record.ts";
import type { Settlement, Store } from "../core/store.ts";
import type { StoreVerb } from "./events.ts";
import type { Execution, ExecutionPolicy } from "./execution.ts";
import type { Runtime } from "./runtime.ts";
import type { Late } from "./store-line.ts";

/** A reservation whose answer was lost: the store may have granted it, and nothing ran under it. */
export interface Disowned extends RecordId {
  readonly owner: string;
  readonly policy: ExecutionPolicy;
  readonly since: number;
}

interface Unsettled {
  readonly settlement: Settlement;
  readonly since: number;
}

export interface UnheardOptions {
  readonly store: Store;
  readonly runtime: Runtime;
  /** How long a reservation can still be on its way, or hold, after it was sent. */
  readonly reservationMsMax: number;
  /** One question to the store; undefined if it did not answer. */
  ask<T>(verb: StoreVerb, call: () => Promise<T>): Promise<T | undefined>;
  /** There is something to tell, so heartbeats have to go on. */
  keepBeating(): void;
  /** An outcome that the store has not taken for too long is given up. */
  gaveUp(execution: Execution): void;
}

/** What the store did not hear while it was down: outcomes that are known, and reservations that were not used. */
export class Unheard {
  readonly #options: UnheardOptions;
  readonly #unsettled = new Map<Execution, Unsettled>();
  readonly #disowned = new Set<Disowned>();
  #isTelling = false;

  constructor(options: UnheardOptions) {
    this.#options = options;
  }

  get isEmpty(): boolean {
    return this.#unsettled.size === 0 && this.#disowned.size === 0;
  }

  get hasOutcomes(): boolean {
    return this.#unsettled.size > 0;
  }

  /** What is known must not be lost while this process lives. */
  addOutcome(execution: Execution, settlement: Settlement): void {
    this.#unsettled.set(execution, { settlement, since: this.#options.runtime.now() });
    this.#options.keepBeating();
  }

  /**
   * A reservation whose answer did not come may have been granted, now or later. Nothing was executed under it, and
   * saying so frees the key, instead of leaving it to a reconciliation that could never find out.
   */
  addReservation(disowned: Disowned, late: Late | undefined): void {
    // After a long outage the store must not be greeted with a question for every request that it refused.
    if (this.#disowned.size >= disownedMax) return;
    this.#disowned.add(disowned);
    this.#options.keepBeating();
    const come = () => void this.tell();
    const failed = () => {};
    if (isPending(late)) late.tell({ answered: come, failed });
    else late?.then(come, failed);
  }

  /** Tells the store again, one round at a time. */
  async tell(): Promise<void> {
    if (this.#isTelling) return;
    this.#isTelling = true;
    try {
      await Promise.all(
        [...this.#unsettled].map(([execution, unsettled]) => this.#settleAgain(execution, unsettled)),
      );
      for (const disowned of this.#disowned) {
        if (!(await this.#giveBack(disowned))) return;
      }
    } finally {
      this.#isTelling = false;
    }
  }

  async #settleAgain(execution: Execution, { settlement, since }: Unsettled): Promise<void> {
    const { ask, store, runtime, gaveUp } = this.#options;
    const answer = await ask("settle", () => store.settle(execution.lease, settlement));
    if (answer !== undefined) {
      this.#unsettled.delete(execution);
      execution.confirm(settlement, answer);
    } else if (runtime.now() - since > tellMsMax) {
      // A key must end some time, even if the store takes everything but this.
      this.#unsettled.delete(execution);
      gaveUp(execution);
    }
  }

  /** False when the store does not answer, and there is no use in going on. */
  async #giveBack(disowned: Disowned): Promise<boolean> {
    const { ask, store, runtime, reservationMsMax } = this.#options;
    const { scope, key, owner, policy, since } = disowned;
    const reading = await ask("read", () => store.read({ scope, key }));
    // The reservation may still be on its way; after a while it is not, and whatever came of it has run out.
    if (runtime.now() - since > reservationMsMax) this.#disowned.delete(disowned);
    if (reading === undefined) return false;
    const { record } = reading;
    if (record?.state !== "in_progress" || record.owner !== owner) return true;
    const reason = "the store's answer was lost, and the request was refused before anything ran";
    const { fence, progress } = record;
    // Whatever a worker was to execute or to finish is left for a worker again.
    const isForWorker =
      policy.onInFlight === "accept" || (policy.onCrash === "resume" && (fence > 1 || progress.length > 0));
    const release: Settlement = {
      kind: "release",
      reason,
      retentionMs: policy.retentionMs,
      ...(isForWorker && keepsRequest(policy) ? { resumeAfterMs: 0 } : {}),
    };
    const answer = await ask("settle", () => store.settle({ scope, key, owner, fence }, release));
    if (answer !== undefined) this.#disowned.delete(disowned);
    return answer !== undefined;
  }
}

/** Longer than any failover, and an end. */
const tellMsMax = 3_600_000;

const disownedMax = 200;
