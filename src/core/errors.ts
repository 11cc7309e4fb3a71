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

/** `currentOperation()` was called where no idempotent request is being handled. */
export class NoOperationError extends LatchkeyError {
  constructor() {
    super(
      "no-operation",
      "currentOperation() was called outside of an idempotent request: mount idempotent(latchkey) on this route, " +
        "and call it from the handler or what the handler awaits",
    );
  }
}
