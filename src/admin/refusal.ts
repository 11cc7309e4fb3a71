import { STATUS_CODES } from "node:http";
import { ConfigError, PhaseError, StoreError, UnreadableError } from "../core/errors.ts";
import type { ProblemView } from "./views.ts";

/** Why the admin API does not do what it was asked. */
export class Refusal extends Error {
  readonly status: number;
  readonly code: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly errors: ProblemView["errors"];

  constructor(
    status: number,
    code: string,
    detail: string,
    rest: {
      readonly headers?: Readonly<Record<string, string>>;
      readonly errors?: ProblemView["errors"];
    } = {},
  ) {
    super(detail);
    this.name = "Refusal";
    this.status = status;
    this.code = code;
    this.headers = rest.headers ?? {};
    this.errors = rest.errors;
  }

  get problem(): ProblemView {
    const { status, code, errors } = this;
    return {
      type: "about:blank",
      title: STATUS_CODES[status] ?? "Refused",
      status,
      detail: this.message,
      code,
      ...(errors === undefined ? {} : { errors }),
    };
  }
}

/** What an error means to whoever asked. Nothing of an unexpected one is told: it may speak of what they may not see. */
export function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof UnreadableError) return new Refusal(409, "unreadable", error.message);
  if (error instanceof StoreError) {
    return new Refusal(503, "store-unavailable", `${error.message}. Try again in a moment.`, {
      headers: { "retry-after": "1" },
    });
  }
  // What was asked for cannot be done to this record, or not with these words.
  if (error instanceof PhaseError || error instanceof ConfigError) {
    return new Refusal(400, "not-applicable", error.message);
  }
  process.emitWarning(error instanceof Error ? error : String(error));
  return new Refusal(
    500,
    "unexpected",
    "Something went wrong that nobody thought of: the process has warned of it.",
  );
}
