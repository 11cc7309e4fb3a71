import { AsyncLocalStorage } from "node:async_hooks";
import { NoOperationError } from "../core/errors.ts";
import type { Execution } from "../engine/execution.ts";

/** One idempotent request, as its handler sees it. */
export interface Operation {
  /** The key that the client sent. */
  readonly key: string;
  /** What the key is unique within: the tenant, and the endpoint where the policy says so. */
  readonly scope: string;
  /** 1 for the first execution, more when an earlier one failed or died: then look before you leap. */
  readonly attempt: number;
  /** Aborts when this process loses the right to execute, or when the time is up. */
  readonly signal: AbortSignal;
  /** Keeps this answer for longer, or shorter, than the route's policy says. */
  retainFor(ms: number): void;
}

const storage = new AsyncLocalStorage<Operation>();

/**
 * The operation of the request that is being handled, anywhere below the handler.
 *
 * @example
 * ```ts
 * app.post("/charges", idempotent(latchkey), async (req, res) => {
 *   const { signal, attempt } = currentOperation();
 *   res.status(201).json(await charge(req.body, { signal, attempt }));
 * });
 * ```
 */
export function currentOperation(): Operation {
  const operation = storage.getStore();
  if (operation === undefined) throw new NoOperationError();
  return operation;
}

/** Runs `handler` so that {@link currentOperation} finds this execution. */
export function runOperation<T>(execution: Execution, handler: () => T): T {
  return storage.run(new ExecutionOperation(execution), handler);
}

/** Whether the code that asks runs on behalf of this execution. */
export function isOperationOf(execution: Execution): boolean {
  const operation = storage.getStore();
  return operation instanceof ExecutionOperation && operation.is(execution);
}

class ExecutionOperation implements Operation {
  readonly #execution: Execution;

  constructor(execution: Execution) {
    this.#execution = execution;
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

  retainFor(ms: number): void {
    this.#execution.retainFor(ms);
  }
}
