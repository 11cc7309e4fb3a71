import type { RecordId } from "../../src/core/record.ts";
import type { Verb } from "../../src/stores/gathering.ts";

export interface Call extends RecordId {
  readonly bytes?: number;
}

/** A database that answers when it is told to, and remembers what it was asked. */
export function database({ isUnordered = false, isUrgent = false } = {}) {
  const asked: { readonly keys: readonly string[]; answer(): void; fail(error: unknown): void }[] = [];
  const hold = <A>(keys: readonly string[], answers: A) =>
    new Promise<A>((resolve, reject) => {
      asked.push({ keys, answer: () => resolve(answers), fail: reject });
    });
  const verb: Verb<Call, string> = {
    alone: ({ key }) => hold([key], `alone ${key}`),
    together: (calls) =>
      hold(
        calls.map(({ key }) => key),
        calls.map(({ key }) => (key.startsWith("odd") ? undefined : `together ${key}`)),
      ),
    bytes: ({ bytes = 1 }) => bytes,
    isUnordered,
    isUrgent,
  };
  return { asked, verb };
}

/** Whoever is left waiting by a test is refused some time later. */
export const ignored = () => {};
export const turn = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
export const id = (key: string): Call => ({ scope: "s", key });
