/**
 * An answer that is still to come, and that one listener is told of: in place of a promise that would be made only to be
 * listened to once, which costs as much as much of what is done in between.
 *
 * The listener is told from wherever the answer comes, in whatever asynchronous context that is. What runs code of the
 * application's must therefore go through a promise of its own.
 */
export interface Pending<Answer> {
  /** Who is told, in place of whoever was to be told before. An answer that has come already is not told again. */
  tell(listener: Listener<Answer>): void;
}

/** Neither of the two may throw: whoever tells has others to tell. */
export interface Listener<Answer> {
  answered(answer: Answer): void;
  failed(error: unknown): void;
}

export function isPending<Answer>(answer: unknown): answer is Pending<Answer> {
  return typeof (answer as { tell?: unknown } | undefined)?.tell === "function";
}

/** The promise of an answer, for whoever wants one. */
export function promised<Answer>(ask: () => Answer | Promise<Answer> | Pending<Answer>): Promise<Answer> {
  return new Promise((answered, failed) => {
    const answer = ask();
    if (isPending<Answer>(answer)) answer.tell({ answered, failed });
    else answered(answer);
  });
}
