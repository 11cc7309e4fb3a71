/** Everything that Latchkey throws; `code` is stable, the message says what to do. */
export class LatchkeyError extends Error {
  readonly code: string;
  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** Latchkey was put together wrongly. Thrown while it is constructed, never at the first request. */
export class ConfigError extends LatchkeyError {
  constructor(message: string) {
    super("config", message);
  }
}

/** The store did not answer, or answered with an error: nothing may be concluded from it. */
export class StoreError extends LatchkeyError {
  constructor(message: string, options?: ErrorOptions) {
    super("store-unavailable", message, options);
  }
}

/** The store was not even asked, because it does not keep up: nothing has happened. */
export class StoreBusyError extends StoreError {
  constructor(what: string) {
    super(`${what}: it does not keep up, and nothing was sent`);
  }
}

/** The store is well, and this one call is what it cannot serve, as it is: another one may succeed. */
export class StoreRefusedError extends StoreError {}

/**
 * The store answered, and this process cannot read what is stored: it was sealed with a key that is not in its ring, or
 * it was changed. Nothing may be executed because of it, whatever a route says about a store that is down.
 */
export class UnreadableError extends StoreRefusedError {}

/** Another owner has the key by now, or this one cannot prove that it still has it. */
export class LeaseLostError extends LatchkeyError {
  constructor(message: string) {
    super("lease-lost", message);
  }
}

/** The handler took longer than its route allows. */
export class ExecutionTimeoutError extends LatchkeyError {
  constructor(message: string) {
    super("execution-timeout", message);
  }
}

/** A handler used phases in a way that could not be resumed. The message says how to write it instead. */
export class PhaseError extends LatchkeyError {
  constructor(message: string, options?: ErrorOptions) {
    super("phase", message, options);
  }
}

/** The phases of a resumed handler are not those that were recorded: it was changed since, or is not deterministic. */
export class FlowChangedError extends LatchkeyError {
  constructor(message: string) {
    super("flow-changed", message);
  }
}

/**
 * An external call failed in an earlier attempt, and the handler went on without it. It has the properties of the error
 * of that time that were text, numbers or booleans; only its class is another.
 */
export class EffectFailedError extends LatchkeyError {
  constructor(message: string) {
    super("effect-failed", message);
  }
}

/** Why `latchkey.run` neither executed nor had a result to give back. */
export type RefusalCode =
  | "in-flight"
  | "key-reused"
  | "outcome-unknown"
  | "lease-lost"
  | "execution-timeout"
  | "rate-limited"
  | "late-arrival"
  | "request-time-invalid";

/** An operation was not executed, or its result is not known; `code` says which, and whether to try again. */
export class OperationRefusedError extends LatchkeyError {
  declare readonly code: RefusalCode;
  /** When the same call makes sense again; undefined if it never does. */
  readonly retryAfterMs: number | undefined;

  constructor(code: RefusalCode, message: string, options: { readonly retryAfterMs?: number } = {}) {
    super(code, message);
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** Somebody said what became of a request, and could not prove that they may. */
export class UnverifiedError extends LatchkeyError {
  constructor() {
    super("unverified", "verify() did not confirm who is asking: nothing was changed");
  }
}

/** `currentOperation()` was called where no idempotent request is being handled, or no longer. */
export class NoOperationError extends LatchkeyError {
  constructor() {
    super(
      "no-operation",
      "currentOperation() was called outside of an idempotent request, or after its handler had answered: mount " +
        "idempotent(latchkey) on this route, and call it from the handler or what the handler awaits",
    );
  }
}
