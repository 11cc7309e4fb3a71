import type { HeartbeatAnswer, Lease } from "../core/store.ts";
import type { Execution } from "./execution.ts";
import type { Cancel, Runtime } from "./runtime.ts";

/** The leases that this process holds, kept alive by one heartbeat for all of them. */
export class Leases {
  /** A list through the executions themselves: nobody looks for one, and every request comes and goes. */
  #first: Execution | undefined;
  #last: Execution | undefined;
  readonly #options: LeasesOptions;
  readonly #intervalMs: number;
  #cancel: Cancel | undefined;
  #closed = false;

  constructor(options: LeasesOptions) {
    this.#options = options;
    this.#intervalMs = options.leaseMs / heartbeatsPerLease;
  }

  add(execution: Execution): void {
    execution.isHeld = true;
    execution.heldBefore = this.#last;
    if (this.#last === undefined) this.#first = execution;
    else this.#last.heldAfter = execution;
    this.#last = execution;
    this.#schedule();
  }

  delete(execution: Execution): void {
    if (!execution.isHeld) return;
    const { heldBefore, heldAfter } = execution;
    if (heldBefore === undefined) this.#first = heldAfter;
    else heldBefore.heldAfter = heldAfter;
    if (heldAfter === undefined) this.#last = heldBefore;
    else heldAfter.heldBefore = heldBefore;
    execution.isHeld = false;
    // One that has ended must not keep those alive that came after it.
    execution.heldBefore = undefined;
    execution.heldAfter = undefined;
  }

  /** Everything is lost at once. */
  loseAll(reason: string): void {
    for (const execution of this.#held()) execution.lose(reason);
  }

  get isEmpty(): boolean {
    return this.#first === undefined;
  }

  /** A copy, since those that are lost or renewed leave the list. */
  #held(): Execution[] {
    const held: Execution[] = [];
    for (let each = this.#first; each !== undefined; each = each.heldAfter) held.push(each);
    return held;
  }

  close(): void {
    this.#closed = true;
    this.#cancel?.();
  }

  /** The timer runs only while there is something to keep alive. */
  #schedule(ms = this.#intervalMs): void {
    if (this.#cancel !== undefined || this.#closed) return;
    const { runtime } = this.#options;
    this.#cancel = runtime.setTimer(() => void this.#beat(), Math.max(0, ms), { background: true });
  }

  async #beat(): Promise<void> {
    const sentAt = this.#options.runtime.now();
    // A lease that is younger than half an interval lives until the next beat; most requests never need one.
    const due = this.#held().filter((execution) => sentAt - execution.renewedAt >= this.#intervalMs / 2);
    if (due.length > 0) await this.#renew(due, sentAt);
    // Whatever else has to be told to the store must not delay the next heartbeat.
    this.#options.afterBeat();
    this.#cancel = undefined;
    if (!this.isEmpty || this.#options.needed()) {
      this.#schedule(this.#intervalMs - (this.#options.runtime.now() - sentAt));
    }
  }

  /** Called when work is left that only a later beat can do. */
  keepBeating(): void {
    this.#schedule();
  }

  async #renew(due: readonly Execution[], sentAt: number): Promise<void> {
    const answers = await this.#options.renew(due.map((execution) => execution.lease));
    for (const [index, execution] of due.entries()) {
      const answer = answers === undefined ? "unknown" : answers[index];
      if (answer === "held") execution.renewedAt = sentAt;
      else if (answer === "unknown") this.#missed(execution);
      else execution.lose("the heartbeat found that another owner has taken the key");
    }
  }

  /** A heartbeat that the store did not answer costs nothing, as long as the lease lasts without it. */
  #missed(execution: Execution): void {
    const { runtime, leaseMs } = this.#options;
    if (!execution.isRunning || runtime.now() - execution.renewedAt < leaseMs) return;
    // The handler was told to stop, so its lease must be let go: renewed later on, it would outlive its use.
    execution.loseTouch();
    this.delete(execution);
  }
}

/** Two heartbeats may be missed before anybody else can take over. */
const heartbeatsPerLease = 3;

interface LeasesOptions {
  readonly runtime: Runtime;
  readonly leaseMs: number;
  /** Undefined when the store could not be asked. */
  readonly renew: (leases: readonly Lease[]) => Promise<readonly HeartbeatAnswer[] | undefined>;
  /** Runs after each heartbeat: outcomes that the store has not confirmed are told again. */
  readonly afterBeat: () => void;
  /** Whether heartbeats must go on although nothing is held. */
  readonly needed: () => boolean;
}
