import { AsyncLocalStorage } from "node:async_hooks";
import { NoOperationError } from "../core/errors.ts";
import { recoveryPointOf } from "../core/phase.ts";
import { atTurnEnd } from "../core/turn-end.ts";
import type { Execution } from "../engine/execution.ts";
import type { Jsonified } from "./json.ts";
import type { OwnResponse } from "./own-response.ts";
import { type EffectContext, type EffectOptions, type EnqueueOptions, Phases } from "./phases.ts";

/**
 * One idempotent operation, as its handler sees it. `Tx` is what business writes go through: a `PoolClient` of `pg`,
 * the transaction of `postgres`, an SQLite connection.
 */
export interface Operation<Tx = unknown> {
  /** The key that the client sent. */
  readonly key: string;
  /** What the key is unique within: the tenant, and the endpoint where the policy says so. */
  readonly scope: string;
  /** 1 for the first execution, more when an earlier one failed or died: then look before you leap. */
  readonly attempt: number;
  /** Aborts when this process loses the right to execute, or when the time is up. */
  readonly signal: AbortSignal;
  /** The name of the last phase that is done; undefined before the first. */
  readonly recoveryPoint: string | undefined;

  /** Keeps this answer for longer, or shorter, than the route's policy says. */
  retainFor(ms: number): void;

  /**
   * One transaction of the store's database. The business writes made through `tx`, the result, and what was enqueued
   * commit together, and only if this process still holds the key. A later attempt skips it and gets its result.
   */
  atomic<T>(name: string, work: (tx: Tx) => T | Promise<T>): Promise<Jsonified<T>>;

  /**
   * One external call. It may be repeated with the same `idempotencyKey` if its answer is lost; say `keyed: false` if
   * the provider does not deduplicate, and a lost answer makes the outcome unknown instead.
   */
  effect<T>(
    name: string,
    call: (context: EffectContext) => T | Promise<T>,
    options?: EffectOptions,
  ): Promise<Jsonified<T>>;

  /** Within an atomic phase: a message that is delivered because this transaction commits. Answers with its key. */
  enqueue(tx: Tx, topic: string, payload: unknown, options?: EnqueueOptions): Promise<string>;

  /** Within an atomic phase, the last one: this answer commits with it, and is sent once it has. */
  respond(tx: Tx, response: OwnResponse): Promise<void>;
}

const storage = new AsyncLocalStorage<ExecutionOperation>();

/** Handlers below which `currentOperation()` may be called. */
let running = 0;

/**
 * The operation of the request that is being handled, anywhere below the handler. Where it is known when that is over (it returns
 * its answer, or a promise), that is until then, and until the answer is complete and all who listen for that were told.
 *
 * @example
 * ```ts
 * app.post("/rides", idempotent(latchkey, { onCrash: "resume" }), async (req, res) => {
 *   const op = currentOperation<PoolClient>();
 *   const ride = await op.atomic("ride_created", (tx) => insertRide(tx, req.body));
 *   const charge = await op.effect("charge_created", ({ idempotencyKey }) => charge(ride.fare, { idempotencyKey }));
 *   res.status(201).json({ ride: ride.id, charge: charge.id });
 * });
 * ```
 */
export function currentOperation<Tx = unknown>(): Operation<Tx> {
  const operation = storage.getStore();
  if (operation === undefined || operation.isOver) throw new NoOperationError();
  return operation as Operation<Tx>;
}

/**
 * Runs `handler` so that {@link currentOperation} finds this execution, until {@link operationIsOver} is told of it. That may be
 * never: a handler that answers through an object may go on afterwards, and nobody can tell when it stops.
 */
export function runOperation<T>(execution: Execution, handler: () => T): T {
  running += 1;
  const operation = new ExecutionOperation(execution);
  const { trace } = execution;
  if (trace === undefined) return storage.run(operation, handler);
  return trace.run(() => storage.run(operation, handler));
}

/**
 * The handler is done, whatever became of its execution. For as long as none is running, what finds operations is switched
 * off: up to Node 22 it is called for every promise, timer and write of the process, whoever makes them, which was measured
 * to take a tenth of a request. Not before the end of the turn: within a promise's callback the system would lose count of
 * what it is in the midst of.
 */
export function operationIsOver(execution: Execution): void {
  if (execution.isHandlerOver) return;
  execution.isHandlerOver = true;
  running -= 1;
  // Where there are no turns to end, it costs nobody else anything.
  if (running === 0 && typeof setImmediate === "function") atTurnEnd(restIfIdle);
}

function restIfIdle(): void {
  if (running === 0) storage.disable();
}

/** Whether the code that asks runs on behalf of this execution. */
export function isOperationOf(execution: Execution): boolean {
  return storage.getStore()?.is(execution) ?? false;
}

class ExecutionOperation implements Operation {
  readonly #execution: Execution;
  #phases: Phases | undefined;

  constructor(execution: Execution) {
    this.#execution = execution;
  }

  /** What is left of it would else be found or not, depending on who else is running. */
  get isOver(): boolean {
    return this.#execution.isHandlerOver;
  }

  is(execution: Execution): boolean {
    return this.#execution === execution;
  }

  get key(): string {
    return this.#execution.lease.key;
  }

  get scope(): string {
    return this.#execution.lease.scope;
  }

  get attempt(): number {
    return this.#execution.attempt;
  }

  get signal(): AbortSignal {
    return this.#execution.signal;
  }

  get recoveryPoint(): string | undefined {
    // Looking does not make a flow of a handler without phases, whose failures mean what the policy says.
    return this.#phases?.recoveryPoint ?? recoveryPointOf(this.#execution.recorded);
  }

  retainFor(ms: number): void {
    this.#execution.retainFor(ms);
  }

  atomic<T>(name: string, work: (tx: unknown) => T | Promise<T>): Promise<Jsonified<T>> {
    return this.#flow.atomic(name, work);
  }

  effect<T>(
    name: string,
    call: (context: EffectContext) => T | Promise<T>,
    options?: EffectOptions,
  ): Promise<Jsonified<T>> {
    return this.#flow.effect(name, call, options);
  }

  enqueue(tx: unknown, topic: string, payload: unknown, options?: EnqueueOptions): Promise<string> {
    return this.#flow.enqueue(tx, topic, payload, options);
  }

  respond(tx: unknown, response: OwnResponse): Promise<void> {
    return this.#flow.respond(tx, response);
  }

  /** Made on demand: most handlers have no phases. */
  get #flow(): Phases {
    this.#phases ??= new Phases(this.#execution);
    return this.#phases;
  }
}
