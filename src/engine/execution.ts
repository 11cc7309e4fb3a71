import { ExecutionTimeoutError, LeaseLostError } from "../core/errors.ts";
import type { Progress } from "../core/phase.ts";
import { keepsRequest, type Policy } from "../core/policy.ts";
import { redacted } from "../core/redaction.ts";
import { notProcessedStatuses, type StoredResponse } from "../core/response.ts";
import type {
  Advance,
  ExecuteAfter,
  Lease,
  PhaseCommit,
  RenewAnswer,
  SettleAnswer,
  Settlement,
  Store,
  TransactAnswer,
} from "../core/store.ts";
import { backoffMs, settledStates } from "../core/transition.ts";
import { Deadline, type Deadlines } from "./deadlines.ts";
import type { Events, LatchkeyEvent } from "./events.ts";
import type { Flight } from "./flight.ts";
import type { Flow, Outcome, Settled } from "./outcome.ts";
import type { ExecutionTrace } from "./tracing.ts";

export type ExecutionPolicy = Pick<
  Policy,
  | "onInFlight"
  | "waitMs"
  | "onCrash"
  | "onServerError"
  | "onStoreDown"
  | "retentionMs"
  | "executionTimeoutMs"
  | "reconcileAfterMs"
  | "isDefinitelyNotExecuted"
  | "keepRequest"
  | "lateArrivals"
  | "redact"
  | "replayHeaders"
  | "responseBytesMax"
>;

/** What an execution needs from the engine that started it. */
export interface ExecutionHost {
  readonly events: Events;
  deadlines(ms: number): Deadlines;
  /** Tells the store, and answers with what `meaning` makes of its answer; of none, if the store gave none. */
  settle(
    execution: Execution,
    settlement: Settlement,
    meaning: (answer: SettleAnswer | undefined) => Settled,
  ): Settled | Promise<Settled>;
  /** The execution needs its lease no longer. */
  ended(execution: Execution, settled: Settled): void;
  readonly store: Store;
  advance(execution: Execution, advance: Advance): Promise<RenewAnswer>;
  transact<T>(
    execution: Execution,
    work: (tx: unknown) => T | Promise<T>,
    commit: (result: T) => PhaseCommit,
  ): Promise<TransactAnswer<T>>;
  random(): number;
  now(): number;
  /** Whether the lease has run out on this process's own clock: it slept, and somebody else may hold the key. */
  isLapsed(execution: Execution): boolean;
}

/**
 * One attempt at one request: the holder of a lease from the moment it was reserved until it is settled. Its time limit is a
 * deadline, which it is itself: every request has one.
 */
export class Execution extends Deadline {
  readonly lease: Lease;
  readonly after: ExecuteAfter;
  /** What earlier attempts have written down. */
  readonly recorded: Progress;
  /** When the first of them was reserved. */
  readonly createdAt: number;
  /** Set by the handler's first phase. */
  flow: Flow | undefined;
  /** What duplicates in this process join while this is under way; the engine's own. */
  flight: Flight | undefined;
  /** Set where traces are drawn. */
  trace: ExecutionTrace | undefined;
  /** Others like it are under way in this process: its outcome is told with theirs. */
  isOfCrowd = false;
  /** Whether its handler is known to have come to its end; set by whoever runs it. */
  isHandlerOver = false;
  /** When the store last confirmed the lease, on this process's clock. */
  renewedAt: number;
  /** Its place among the leases that this process holds; theirs to set. */
  isHeld = false;
  heldBefore: Execution | undefined;
  heldAfter: Execution | undefined;
  readonly #host: ExecutionHost;
  readonly #policy: ExecutionPolicy;
  readonly #deadlines: Deadlines;
  readonly #reservedAt: number;
  /** How long it took until its outcome was known; 0 if nobody was listening then. */
  #tookMs = 0;
  #retentionMs: number;
  #abort: AbortController | undefined;
  #abortReason: Error | undefined;
  /** Nothing that is said later counts. Before `#settling`, since a store may answer within the call. */
  #isOutcomeKnown = false;
  #settling: Settled | Promise<Settled> | undefined;
  #onGivenUp: ((settled: Settled) => void) | undefined;

  constructor(options: {
    readonly host: ExecutionHost;
    readonly policy: ExecutionPolicy;
    readonly lease: Lease;
    readonly after: ExecuteAfter;
    readonly progress: Progress;
    readonly createdAt: number;
    /** When the reservation was sent: the lease cannot have begun earlier. */
    readonly reservedAt: number;
    /** When it was granted: the time limit counts from here. */
    readonly grantedAt: number;
  }) {
    super();
    this.#host = options.host;
    this.#policy = options.policy;
    this.lease = options.lease;
    this.after = options.after;
    this.recorded = options.progress;
    this.createdAt = options.createdAt;
    this.renewedAt = options.reservedAt;
    this.#reservedAt = options.reservedAt;
    this.#retentionMs = options.policy.retentionMs;
    this.#deadlines = options.host.deadlines(options.policy.executionTimeoutMs);
    this.#deadlines.add(this, options.grantedAt);
  }

  get policy(): ExecutionPolicy {
    return this.#policy;
  }

  get store(): Store {
    return this.#host.store;
  }

  get retentionMs(): number {
    return this.#retentionMs;
  }

  /** 1 for the first execution, more when an earlier one failed or died. */
  get attempt(): number {
    return this.lease.fence;
  }

  /** Whether the handler has yet to say how it ended. */
  get isRunning(): boolean {
    return !this.#isOutcomeKnown;
  }

  /** Aborts when the lease is lost or the time is up. Made on demand: most handlers never look. */
  get signal(): AbortSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController();
      if (this.#abortReason) this.#abort.abort(this.#abortReason);
    }
    return this.#abort.signal;
  }

  /** Whether somebody may be listening for its end. */
  get hasSignal(): boolean {
    return this.#abort !== undefined;
  }

  /** Keeps the answer for longer, or shorter, than the route's policy says. */
  retainFor(ms: number): void {
    if (!(ms > 0)) throw new RangeError(`retainFor takes milliseconds above 0, got ${ms}`);
    // Where late arrivals are refused, keys count as late by the route's retention: an answer that went earlier would
    // leave a time in which its retry is executed again.
    const isShortest = this.#policy.lateArrivals === "reject";
    this.#retentionMs = isShortest ? Math.max(ms, this.#policy.retentionMs) : ms;
  }

  /** Throws if this process has lost the right to execute, cannot be sure that it has it, or its time is up. */
  assertHeld(): void {
    if (this.#abortReason === undefined && this.#host.isLapsed(this)) this.loseTouch();
    if (this.#abortReason !== undefined) throw this.#abortReason;
  }

  /** Writes down how far the handler has come. */
  async advance(advance: Advance): Promise<void> {
    if ((await this.#host.advance(this, advance)) === "lost") this.#refuse();
  }

  /** Runs a business transaction that commits only while this execution holds its lease. */
  async transact<T>(
    work: (tx: unknown) => T | Promise<T>,
    commit: (result: T) => PhaseCommit,
  ): Promise<Extract<TransactAnswer<T>, { kind: "committed" }>> {
    const answer = await this.#host.transact(this, work, commit);
    return answer.kind === "committed" ? answer : this.#refuse();
  }

  /** The answer was committed together with the last business write: nothing is left to be settled. */
  answeredBy(
    complete: Extract<Settlement, { kind: "complete" }>,
    expiresAt: number,
    made: StoredResponse | undefined,
  ): void {
    if (this.#isOutcomeKnown) return;
    this.#outcomeIsKnown();
    const settled = this.confirm(complete, { kind: "settled", expiresAt }, made);
    this.#settling = settled;
    this.#onGivenUp?.(settled);
  }

  tellPhase(phase: Pick<Extract<LatchkeyEvent, { type: "phase" }>, "kind" | "name" | "outcome">): void {
    const { scope, key } = this.lease;
    this.trace?.phaseEnded(phase.outcome);
    this.#host.events.emit({ type: "phase", scope, key, attempt: this.attempt, ...phase });
  }

  /** The store refused a write of this execution's. */
  #refuse(): never {
    const reason = "another owner has taken the key";
    this.lose(reason);
    throw this.#abortReason ?? new LeaseLostError(reason);
  }

  /** Called once, when the execution ended although the handler has not: its time is up, or its lease is lost. */
  set onGivenUp(run: (settled: Settled) => void) {
    this.#onGivenUp = run;
  }

  /** Ends the lease with what the handler made of it. The first outcome counts; later ones learn what became of it. */
  settle(outcome: Outcome): Settled | Promise<Settled> {
    this.#settling ??= this.#settle(this.#settlementFor(outcome), outcome.response);
    return this.#settling;
  }

  /** Ends the lease of an execution that never began. */
  abandon(reason: string): Settled | Promise<Settled> {
    this.#settling ??= this.#settle(this.#release(reason));
    return this.#settling;
  }

  /** Ends the lease of an execution that may have had its effect, which nobody here can know: whatever the policy says. */
  suspend(reason: string): Settled | Promise<Settled> {
    this.#settling ??= this.#settle(this.#suspension(reason));
    return this.#settling;
  }

  /** The store said that somebody else holds the key. */
  lose(reason: string): void {
    this.#abortWith(new LeaseLostError(`${reason}; stop, and do not act on the outside world any more`));
    if (this.#isOutcomeKnown) return;
    this.#outcomeIsKnown();
    const lost = this.#end({ kind: "lost" }, reason);
    this.#settling = lost;
    this.#onGivenUp?.(lost);
  }

  /**
   * Somebody else answered the client while the handler was still at work. Nobody waits for its outcome any more, and
   * nobody may begin again either: it counts as that of a crash.
   */
  interrupt(reason: string): Settled | Promise<Settled> {
    this.#giveUp(reason);
    return this.#settling ?? { kind: "timedOut" };
  }

  /** The lease ran out and the store could not be asked. It may still be ours, so settling is still tried. */
  loseTouch(): void {
    this.#abortWith(new LeaseLostError("the lease ran out while the store could not be reached"));
  }

  #settle(settlement: Settlement, response?: StoredResponse): Settled | Promise<Settled> {
    this.#outcomeIsKnown();
    return this.#tell(settlement, (answer) =>
      answer === undefined ? this.#end({ kind: "storeDown" }) : this.confirm(settlement, answer, response),
    );
  }

  #tell(
    settlement: Settlement,
    meaning: (answer: SettleAnswer | undefined) => Settled,
  ): Settled | Promise<Settled> {
    const { trace } = this;
    if (trace === undefined) return this.#host.settle(this, settlement, meaning);
    return trace.settle(settlement, async () => this.#host.settle(this, settlement, meaning));
  }

  /** What the store's word on a settlement means. Also used when it comes late. */
  confirm(settlement: Settlement, answer: SettleAnswer, response?: StoredResponse): Settled {
    if (answer.kind === "lost") {
      const reason = "the outcome came after another owner had taken the key";
      this.#abortWith(new LeaseLostError(reason));
      return this.#end({ kind: "lost" }, reason);
    }
    this.#tellSettled(settlement);
    switch (settlement.kind) {
      case "complete":
        return this.#end({
          kind: "stored",
          response: response ?? settlement.response,
          expiresAt: answer.expiresAt,
          kept: settlement.response,
        });
      case "release":
        return this.#end({ kind: "released" });
      case "suspend":
        return this.#end({ kind: "suspended", retryAfterMs: settlement.reconcileAfterMs });
      default:
        return settlement satisfies never;
    }
  }

  #tellSettled(settlement: Settlement): void {
    const { events } = this.#host;
    if (!events.areHeard) return;
    const { scope, key, fence } = this.lease;
    const settled = {
      type: "settled",
      scope,
      key,
      attempt: fence,
      ms: this.#tookMs,
      as: settledStates[settlement.kind],
    } as const;
    events.emit(settlement.kind === "complete" ? settled : { ...settled, reason: settlement.reason });
  }

  #outcomeIsKnown(): void {
    this.#isOutcomeKnown = true;
    this.#deadlines.meet(this);
    if (this.#host.events.areHeard) this.#tookMs = this.#host.now() - this.#reservedAt;
  }

  /** Its time is up. */
  override missed(): void {
    if (this.#isOutcomeKnown) return;
    const { scope, key } = this.lease;
    this.#host.events.emit({ type: "execution_timeout", scope, key, attempt: this.attempt });
    this.#giveUp(`the handler took longer than ${this.#policy.executionTimeoutMs} ms`);
    this.#onGivenUp?.({ kind: "timedOut" });
  }

  #giveUp(reason: string): void {
    if (this.#isOutcomeKnown) return;
    this.#outcomeIsKnown();
    this.#abortWith(new ExecutionTimeoutError(reason));
    // Where a crash would be reconciled, say so at once. Elsewhere the lease is left to run out, which gives the
    // handler that long to notice its signal before anybody else may begin.
    if (this.#policy.onCrash === "reconcile" || this.flow?.failureMeans === "unknown") {
      const settlement = this.#suspension(reason);
      this.#settling = this.#tell(settlement, (answer) => {
        if (answer !== undefined) this.confirm(settlement, answer);
        return this.#end({ kind: "timedOut" });
      });
    } else {
      this.#settling = this.#end({ kind: "timedOut" });
    }
  }

  #settlementFor(outcome: Outcome): Settlement {
    const { status } = outcome.response;
    const threw = outcome.kind === "threw";
    const isPlain = this.flow === undefined && this.recorded.length === 0;
    if (isPlain && !threw && status < 500 && !notProcessedStatuses.has(status))
      return this.#completion(outcome.response);
    const reason = threw ? "the handler threw" : `the handler answered ${status}`;
    const divergence = this.flow?.divergence;
    if (divergence !== undefined) return this.#suspension(divergence);
    if (threw || status >= 500) return this.#failure(outcome, reason);
    if (notProcessedStatuses.has(status)) {
      // Nothing was processed, says the status; but the phases know of a call that may have been.
      if (this.flow?.failureMeans === "unknown") return this.#suspension(`${reason}, ${openCall}`);
      return this.#release(reason);
    }
    if (this.flow?.isInDoubt) {
      return this.#suspension(`${reason} although the store had not said whether a phase was committed`);
    }
    const unvisited = this.flow?.unvisited ?? this.recorded.length;
    if (unvisited > 0) {
      return this.#suspension(`the handler answered without coming to ${unvisited} of its recorded phases`);
    }
    return this.#completion(outcome.response);
  }

  #completion(response: StoredResponse): Settlement {
    return { kind: "complete", response: this.storedForm(response), retentionMs: this.#retentionMs };
  }

  /** What may be stored of an answer, with the trace that its replays point to, where there is one. */
  storedForm(response: StoredResponse): StoredResponse {
    const trace = this.trace?.traceparent;
    const kept = this.#redacted(response);
    return trace === undefined ? kept : { ...kept, trace };
  }

  #redacted(response: StoredResponse): StoredResponse {
    const { redact, responseBytesMax } = this.#policy;
    if (redact === undefined) return response;
    const onError = (error: unknown) => {
      const { scope, key } = this.lease;
      this.#host.events.emit({ type: "handler_failed", scope, key, error });
    };
    return redacted(response, redact, { responseBytesMax, onError });
  }

  /** Phases know what a failure means; without them it is what the route's policy says. */
  #failure(outcome: Outcome, reason: string): Settlement {
    switch (this.flow?.failureMeans ?? (this.recorded.length > 0 ? "resumable" : undefined)) {
      case "unknown":
        return this.#suspension(`${reason}, ${openCall}`);
      case "resumable":
      case "nothing-begun":
        return this.#release(reason);
      case undefined:
        break;
    }
    switch (this.#policy.onServerError) {
      case "retry":
        return this.#release(reason);
      case "reconcile":
        return this.#suspension(reason);
      case "store":
        return this.#completion(outcome.response);
      default:
        return this.#policy.onServerError satisfies never;
    }
  }

  /** A worker goes on with what is half done, and with what was only accepted; anything else waits for a client. */
  #release(reason: string): Settlement {
    const release = { kind: "release", reason, retentionMs: this.#retentionMs } as const;
    const isHalfDone =
      this.#policy.onCrash === "resume" &&
      (this.recorded.length > 0 || (this.flow?.failureMeans ?? "nothing-begun") !== "nothing-begun");
    const waitsForWorker = isHalfDone || this.#policy.onInFlight === "accept";
    if (!waitsForWorker || !keepsRequest(this.#policy)) return release;
    return { ...release, resumeAfterMs: this.#host.random() * backoffMs(resumeBackoff, this.attempt) };
  }

  #suspension(reason: string): Settlement {
    return { kind: "suspend", reason, reconcileAfterMs: this.#policy.reconcileAfterMs };
  }

  #abortWith(reason: Error): void {
    if (this.#abortReason !== undefined) return;
    this.#abortReason = reason;
    this.#abort?.abort(reason);
  }

  #end(settled: Settled, lostBecause?: string): Settled {
    if (lostBecause !== undefined) {
      const { scope, key } = this.lease;
      this.#host.events.emit({ type: "lease_lost", scope, key, attempt: this.attempt, reason: lostBecause });
    }
    this.trace?.ended(settled);
    this.#host.ended(this, settled);
    return settled;
  }
}

const openCall = "after an external call that may have happened";

/** How soon a worker may go on after a failure: full jitter over a second at first, over five minutes at last. */
const resumeBackoff = { baseMs: 500, capMs: 300_000 };
