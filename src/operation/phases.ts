import { FlowChangedError, PhaseError, StoreError } from "../core/errors.ts";
import type { NewMessage } from "../core/outbox.ts";
import { downstreamKey, isBegun, isOpen, type Phase, type Progress, recoveryPointOf } from "../core/phase.ts";
import type { OnCrash, RecordId } from "../core/record.ts";
import type { PhaseCommit, Settlement } from "../core/store.ts";
import type { Execution } from "../engine/execution.ts";
import type { Flow } from "../engine/outcome.ts";
import { errorText, References, revivedError, type Unfinished } from "./effect.ts";
import { fromJsonText, type Jsonified, toJsonText } from "./json.ts";
import { type OwnResponse, storedResponseOf } from "./own-response.ts";

/** What an external call is given. */
export interface EffectContext {
  /** For the provider to deduplicate on: the same in every attempt, and nothing can be read from it. */
  readonly idempotencyKey: string;
  /** Aborts when this process loses the right to execute, or when the time is up. */
  readonly signal: AbortSignal;
  /** Writes down the provider's own id for what the call has made so far, for reconciliation to ask about. */
  reference(id: string): Promise<void>;
}

export interface EffectOptions {
  /** Whether the provider deduplicates on the key, so that the call may be repeated. */
  readonly keyed?: boolean;
  /** Overrides the route's own: whether a call that failed is known not to have happened. */
  readonly isDefinitelyNotExecuted?: (error: unknown) => boolean;
}

export interface EnqueueOptions {
  /** Messages of one partition are delivered in order. */
  readonly partition?: string;
  /** What ties the message to its cause; the operation's key if nothing else is said. */
  readonly correlationId?: string;
  /** How long after the commit the message becomes due. */
  readonly delayMs?: number;
}

/** The phases of one execution: what is done is skipped, what is not is done and written down. */
export class Phases implements Flow {
  readonly #execution: Execution;
  /** Everything that is written down, by earlier attempts and by this one. */
  #progress: Progress;
  /** How many of the recorded phases the handler has come to. */
  #visited = 0;
  readonly #names = new Set<string>();
  #active: Active | undefined;
  /** After this nobody knows what the store has written down, or the handler cannot be trusted to go on. */
  #stopped: Error | undefined;
  #divergence: string | undefined;
  /** An external call is being made. */
  #isCalling = false;

  constructor(execution: Execution) {
    this.#execution = execution;
    this.#progress = execution.recorded;
    execution.flow = this;
  }

  get recoveryPoint(): string | undefined {
    return recoveryPointOf(this.#progress);
  }

  get failureMeans(): Flow["failureMeans"] {
    if (this.#progress.some(isOpen)) return "unknown";
    const hasBegun = this.#progress.some(isBegun) || this.#isCalling || this.isInDoubt;
    return hasBegun ? "resumable" : "nothing-begun";
  }

  get isInDoubt(): boolean {
    return this.#stopped instanceof StoreError;
  }

  get divergence(): string | undefined {
    return this.#divergence;
  }

  get unvisited(): number {
    return this.#progress.length - this.#visited;
  }

  atomic<T>(name: string, work: (tx: unknown) => T | Promise<T>): Promise<Jsonified<T>> {
    return this.#phase<Jsonified<T>>("atomic", name, async (active) => {
      const { at, phase } = this.#comeTo("atomic", name);
      if (phase !== undefined) return this.#skip<T>(phase);
      let committed: PhaseCommit | undefined;
      const { expiresAt } = await this.#execution.transact<T>(
        (tx) => {
          active.tx = { handle: tx };
          return work(tx);
        },
        (result) => {
          active.tx = undefined;
          const done: Phase = { kind: "atomic", name, result: text(result, name) };
          committed = this.#commitOf(active, this.#with(at, done));
          return committed;
        },
      );
      const { progress, response } = committed as PhaseCommit;
      this.#arriveAt(at, progress);
      this.#tell("atomic", name, "done");
      if (response !== undefined) {
        this.#stopped = new PhaseError("the operation has answered with op.respond: nothing can follow");
        this.#execution.answeredBy(response, expiresAt, active.response?.response);
      }
      return resultOf<T>(progress[at]);
    });
  }

  effect<T>(
    name: string,
    call: (context: EffectContext) => T | Promise<T>,
    options: EffectOptions = {},
  ): Promise<Jsonified<T>> {
    const { keyed = true } = options;
    return this.#phase<Jsonified<T>>("effect", name, async (active) => {
      const { at, phase } = this.#comeTo("effect", name, keyed);
      if (phase !== undefined && "result" in phase) return this.#skip<T>(phase);
      // The handler went on without this call. It must not be made after all, and fails as it did then.
      if (phase !== undefined && at < this.#progress.length - 1) throw revivedError(phase);
      const begun = { kind: "effect", name, state: "begun", keyed } as const;
      // A call that must not be repeated is announced first: whoever finds this process dead can tell by it.
      if (!keyed) await this.#advance(at, begun);
      const references = new References((reference) => {
        if (this.#active !== active)
          throw new PhaseError(`"${name}" is over: await reference() within its call`);
        return this.#advance(at, { ...begun, reference });
      });
      // The announcement may have taken long, and whoever does not hold the key must not act on the outside world.
      this.#execution.assertHeld();
      this.#isCalling = true;
      let result: T;
      try {
        result = await call({
          idempotencyKey: downstreamKey(this.#operation, name),
          signal: this.#execution.signal,
          reference: (id) => references.write(id),
        });
        await references.settled();
      } catch (error) {
        await references.settled();
        await this.#noteFailure(at, references.noted(begun), error, options);
        throw error;
      }
      const done: Phase = { ...references.noted(begun), state: "done", result: text(result, name) };
      await this.#advance(at, done);
      this.#isCalling = false;
      this.#tell("effect", name, "done");
      return resultOf<T>(done);
    });
  }

  async enqueue(tx: unknown, topic: string, payload: unknown, options: EnqueueOptions = {}): Promise<string> {
    const active = this.#inTransaction(tx, "op.enqueue");
    const { partition, correlationId, delayMs = 0 } = options;
    assertName("topic", topic);
    if (partition !== undefined) assertName("partition", partition);
    if (correlationId !== undefined) assertName("correlationId", correlationId);
    if (!(delayMs >= 0)) throw new PhaseError(`delayMs is ${delayMs} and must not be below 0`);
    const { lease } = this.#execution;
    const key = downstreamKey(this.#operation, active.name, `message ${active.messages.length}`);
    active.messages.push({
      topic,
      payload: toJsonText(payload, `the payload of "${topic}"`),
      partition: partition ?? null,
      key,
      correlationId: correlationId ?? lease.key,
      scope: lease.scope,
      traceparent: this.#execution.trace?.current() ?? null,
      delayMs,
    });
    return key;
  }

  async respond(tx: unknown, response: OwnResponse): Promise<void> {
    const active = this.#inTransaction(tx, "op.respond");
    if (active.response !== undefined) throw new PhaseError("op.respond was called twice");
    const { policy, retentionMs } = this.#execution;
    active.response = { kind: "complete", response: storedResponseOf(response, policy), retentionMs };
  }

  /** Runs one phase; one at a time, each name once. */
  async #phase<R>(kind: Phase["kind"], name: string, run: (active: Active) => Promise<R>): Promise<R> {
    const active = this.#begin(name);
    try {
      const { trace } = this.#execution;
      const result = await (trace === undefined ? run(active) : trace.phase(kind, name, () => run(active)));
      this.#names.add(name);
      return result;
    } catch (error) {
      // What became of the last write is not known, so nothing may be built on it.
      if (error instanceof StoreError) this.#stopped = error;
      this.#tell(kind, name, "failed");
      throw error;
    } finally {
      this.#active = undefined;
    }
  }

  #begin(name: string): Active {
    if (this.#stopped !== undefined) throw this.#stopped;
    this.#execution.assertHeld();
    if (!this.#execution.isRunning) {
      throw new PhaseError(
        `"${name}" was begun after the operation had been answered: nothing can follow an answer`,
      );
    }
    if (typeof name !== "string" || !/^[!-~]{1,100}$/.test(name)) {
      throw new PhaseError(
        `a phase is named by 1 to 100 visible ASCII characters without spaces, not "${name}"`,
      );
    }
    if (this.#active !== undefined) {
      throw new PhaseError(
        `"${name}" was begun inside or beside the phase "${this.#active.name}": a phase is one transaction or one ` +
          "external call, so await each before the next",
      );
    }
    if (this.#names.has(name)) {
      throw new PhaseError(`the phase "${name}" was used twice: each needs a name of its own`);
    }
    this.#active = { name, tx: undefined, messages: [], response: undefined };
    return this.#active;
  }

  /**
   * The place of a phase in the progress, and what is recorded there. A call that failed keeps its place when the
   * handler tries it again.
   */
  #comeTo(
    kind: Phase["kind"],
    name: string,
    keyed?: boolean,
  ): { readonly at: number; readonly phase: Phase | undefined } {
    const last = this.#progress.at(-1);
    const isAgain = this.unvisited === 0 && last?.name === name;
    const at = isAgain ? this.#progress.length - 1 : this.#visited;
    const phase = this.#progress[at];
    if (phase !== undefined && (phase.kind !== kind || phase.name !== name)) {
      this.#diverge(`the handler began ${kind} "${name}" where ${phase.kind} "${phase.name}" is recorded`);
    }
    if (this.#progress.some((other, index) => other.name === name && index !== at)) {
      throw new PhaseError(`the phase "${name}" was used twice: each needs a name of its own`);
    }
    if (phase === undefined) return { at, phase };
    if (isOpen(phase)) {
      if (!isAgain)
        this.#diverge(`the handler came to "${name}", and it is not known whether that has happened`);
      throw new PhaseError(`it is not known whether "${name}" has happened, so it cannot be tried again`);
    }
    if (phase.kind === "effect" && phase.state === "begun" && keyed === false) {
      this.#diverge(
        `the handler came to "${name}" as a call that must not be repeated, and it has begun as another`,
      );
    }
    this.#visited = at + 1;
    return { at, phase };
  }

  #diverge(how: string): never {
    this.#divergence = `${how}: it was changed while this operation was under way, or is not deterministic`;
    this.#stopped = new FlowChangedError(this.#divergence);
    throw this.#stopped;
  }

  #skip<T>(phase: Phase): Jsonified<T> {
    this.#tell(phase.kind, phase.name, "skipped");
    return resultOf<T>(phase);
  }

  /** What is known about a call that failed is worth a write; what is not known goes with the next phase. */
  async #noteFailure(at: number, begun: Unfinished, thrown: unknown, options: EffectOptions): Promise<void> {
    const isNotExecuted = options.isDefinitelyNotExecuted ?? this.#execution.policy.isDefinitelyNotExecuted;
    const isFailed = isNotExecuted(thrown) === true;
    const noted: Phase = { ...begun, state: isFailed ? "failed" : "begun", error: errorText(thrown) };
    if (isFailed && this.#progress.length > at) await this.#advance(at, noted);
    else this.#arriveAt(at, this.#with(at, noted));
    this.#isCalling = false;
  }

  /** Writes a phase down at its place. */
  async #advance(at: number, phase: Phase): Promise<void> {
    if (this.#stopped !== undefined) throw this.#stopped;
    const progress = this.#with(at, phase);
    try {
      await this.#execution.advance(this.#standing(progress));
    } catch (error) {
      // It may still be written, later than anything that would be written now: so nothing is, in this attempt.
      if (error instanceof StoreError) this.#stopped = error;
      throw error;
    }
    this.#arriveAt(at, progress);
  }

  #arriveAt(at: number, progress: Progress): void {
    this.#progress = progress;
    this.#visited = at + 1;
  }

  #with(at: number, phase: Phase): Progress {
    return this.#progress.toSpliced(at, 1, phase);
  }

  /** What makes downstream keys the same in every attempt. */
  get #operation(): RecordId & { readonly createdAt: number } {
    const { lease, createdAt } = this.#execution;
    return { scope: lease.scope, key: lease.key, createdAt };
  }

  #commitOf(active: Active, progress: Progress): PhaseCommit {
    const { messages, response: made } = active;
    const commit = { ...this.#standing(progress), messages };
    if (made === undefined) return commit;
    return { ...commit, response: { ...made, response: this.#execution.storedForm(made.response) } };
  }

  /** What a crash means from now on: a call that must not be repeated may have happened. */
  #standing(progress: Progress): { readonly progress: Progress; readonly onCrash: OnCrash } {
    const onCrash = progress.some(isOpen) ? "reconcile" : this.#execution.policy.onCrash;
    return { progress, onCrash };
  }

  #inTransaction(tx: unknown, verb: string): Active {
    const active = this.#active;
    if (active?.tx === undefined || active.tx.handle !== tx) {
      throw new PhaseError(
        `${verb} belongs into an atomic phase, with the transaction that the phase was given`,
      );
    }
    return active;
  }

  #tell(kind: Phase["kind"], name: string, outcome: "done" | "skipped" | "failed"): void {
    this.#execution.tellPhase({ kind, name, outcome });
  }
}

/** The phase that is being run. */
interface Active {
  readonly name: string;
  /** Present while its transaction is open. */
  tx: { readonly handle: unknown } | undefined;
  readonly messages: NewMessage[];
  response: Extract<Settlement, { kind: "complete" }> | undefined;
}

/** What every database, broker and header can carry. */
function assertName(what: string, name: unknown): void {
  if (typeof name === "string" && /^[^\p{C}]{1,255}$/u.test(name)) return;
  throw new PhaseError(`the ${what} of a message must be 1 to 255 characters without control characters`);
}

function text(result: unknown, name: string): string {
  return toJsonText(result, `the result of "${name}"`);
}

function resultOf<T>(phase: Phase | undefined): Jsonified<T> {
  if (phase === undefined || !("result" in phase))
    throw new PhaseError("a phase without a result was skipped");
  return fromJsonText<T>(phase.result);
}
