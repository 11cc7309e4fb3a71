/**
 * What is logged of an error, under the name `error`: loggers take what is called `err` for an error of JavaScript's.
 * Enough to look it up, and none of the data that drivers hang on their errors.
 */
export interface LoggedError {
  readonly type: string;
  readonly code: string | undefined;
  readonly message: string;
  /** What it was caused by, in the end. */
  readonly cause?: LoggedError;
}

const messageLengthMax = 300;
const causesMax = 5; // Longer chains are circles.

export function loggedError(error: unknown): LoggedError {
  const root = rootOf(error);
  return root === error ? shown(error) : { ...shown(error), cause: shown(root) };
}

function rootOf(error: unknown): unknown {
  let root = error;
  for (let step = 0; step < causesMax && root instanceof Error && root.cause instanceof Error; step += 1) {
    root = root.cause;
  }
  return root;
}

function shown(error: unknown): LoggedError {
  if (!(error instanceof Error))
    return { type: typeof error, code: undefined, message: firstLine(String(error)) };
  const { code } = error as { code?: unknown };
  return {
    type: error.name,
    code: typeof code === "string" || typeof code === "number" ? String(code) : undefined,
    message: firstLine(error.message),
  };
}

/** What follows on further lines is often the statement, with its values. */
function firstLine(text: string): string {
  return (text.split("\n", 1)[0] ?? "").slice(0, messageLengthMax);
}
