/**
 * The answers of those that have one. What was done for some must be told, although it could not be done for others;
 * only where nothing was done is the first failure thrown.
 */
export function succeeded<Answer>(outcomes: readonly PromiseSettledResult<Answer>[]): Answer[] {
  const answers: Answer[] = [];
  const failures: unknown[] = [];
  for (const outcome of outcomes) {
    if (outcome.status === "fulfilled") answers.push(outcome.value);
    else failures.push(outcome.reason);
  }
  if (answers.length === 0 && failures.length > 0) throw failures[0];
  return answers;
}

/** The same in their order, with `otherwise` in place of an answer that is missing. */
export function succeededOr<Answer, Otherwise>(
  outcomes: readonly PromiseSettledResult<Answer>[],
  otherwise: Otherwise,
): (Answer | Otherwise)[] {
  succeeded(outcomes);
  return outcomes.map((outcome) => (outcome.status === "fulfilled" ? outcome.value : otherwise));
}
