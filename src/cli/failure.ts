import { ConfigError, LatchkeyError } from "../core/errors.ts";

/** How a command ended, for whoever called it. */
export const exitCodes = {
  done: 0,
  /** It failed: the store cannot be reached, a file cannot be read. */
  failed: 1,
  badUsage: 2,
  notFound: 3,
  /** The record, or the message, is in no state for this. */
  refused: 4,
  /** What was judged does not keep the contract. */
  failedChecks: 5,
  /** Ctrl-C. */
  interrupted: 130,
} as const;

/** Why a command ended without having done what it was asked: one sentence, and what to do about it. */
export class Failure extends Error {
  readonly exitCode: number;
  /** For programs that read `--json`. */
  readonly code: string;

  constructor(exitCode: number, code: string, message: string) {
    super(message);
    this.name = "Failure";
    this.exitCode = exitCode;
    this.code = code;
  }
}

/** The command was called in a way that it cannot be. */
export function usage(message: string): Failure {
  return new Failure(exitCodes.badUsage, "usage", message);
}

export function notFound(message: string): Failure {
  return new Failure(exitCodes.notFound, "not-found", message);
}

export function refused(code: string, message: string): Failure {
  return new Failure(exitCodes.refused, code, message);
}

export function failed(message: string, code = "failed"): Failure {
  return new Failure(exitCodes.failed, code, message);
}

/** Whatever was thrown, as one sentence. */
export function failureOf(error: unknown): Failure {
  if (error instanceof Failure) return error;
  if (error instanceof ConfigError) return usage(error.message);
  if (isInvalidUrl(error)) {
    return usage(
      "the store's URL cannot be read: in a password, write / ? # @ and : as %2F %3F %23 %40 and %3A",
    );
  }
  if (error instanceof LatchkeyError) return failed(withCause(error), error.code);
  return failed(withCause(error));
}

/** A store's URL is the only one that is not looked at before it is used: each driver has its own idea of it. */
function isInvalidUrl(error: unknown): boolean {
  const root = rootOf(error);
  return root instanceof Error && (root as { code?: unknown }).code === "ERR_INVALID_URL";
}

const causesMax = 5; // Longer chains are circles.

/** What failed, and why in the end: what lies between repeats one of them. */
function withCause(error: unknown): string {
  const said = sentenceOf(error);
  const reason = sentenceOf(rootOf(error));
  return said.includes(reason) ? said : `${said}: ${reason}`;
}

function rootOf(error: unknown): unknown {
  let root = error;
  for (let step = 0; step < causesMax && root instanceof Error && root.cause !== undefined; step += 1) {
    root = root.cause;
  }
  return root;
}

function sentenceOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // Node tries all addresses of a host, and says nothing itself if all of them fail.
  if (error instanceof AggregateError && error.message === "") return sentenceOf(error.errors[0]);
  const { code } = error as { code?: unknown };
  // What follows on further lines is often the statement, with its values.
  const line = error.message.split("\n", 1)[0] ?? "";
  return line === "" ? String(code ?? error.name) : line;
}
