/** Does the same for each, some at a time, and answers in their order. */
export async function inParallel<T, Answer>(
  items: readonly T[],
  run: (item: T) => Promise<Answer>,
): Promise<Answer[]> {
  const answers: Answer[] = [];
  let next = 0;
  const line = async () => {
    for (let index = next++; index < items.length; index = next++) {
      answers[index] = await run(items[index] as T);
    }
  };
  await Promise.all(Array.from({ length: Math.min(parallelMax, items.length) }, line));
  return answers;
}

/** The same where each may fail on its own. */
export async function settledInParallel<T, Answer>(
  items: readonly T[],
  run: (item: T) => Promise<Answer>,
): Promise<PromiseSettledResult<Answer>[]> {
  return (await inParallel(items, (item) => Promise.allSettled([run(item)]))).flat();
}

/** The client has fifty connections, unless it was told otherwise, and requests need some of them. */
const parallelMax = 16;
