import { asked, offerPending } from "../../src/core/at-once.ts";
import { type Listener, type Pending, promised } from "../../src/core/pending.ts";
import type { Store } from "../../src/core/store.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";

/** What the store was asked, which it answers when the test says so. */
export interface Question {
  readonly verb: "reserve" | "settle";
  readonly form: "pending" | "promise";
  /** Does what was asked for; the answer is still on its way. */
  carryOut(): void;
  /** Tells of it, in the asynchronous context of whoever calls this; does it before, unless that is done. */
  answer(): void;
  fail(error: unknown): void;
}

/**
 * A store that tells one listener of each answer, as those do that gather what they are asked; and what it was asked, the
 * latest last. `refuse` makes it throw instead, until it is told otherwise.
 */
export function tellingStore(clock: () => number) {
  const questions: Question[] = [];
  const store = memoryStore({ clock });
  let refusal: Error | undefined;

  const telling = <Args extends unknown[], Answer>(
    verb: Question["verb"],
    known: (...args: Args) => Promise<Answer>,
  ) => {
    const ask = (form: Question["form"], args: Args): Pending<Answer> => {
      if (refusal !== undefined) throw refusal;
      let told: Listener<Answer> | undefined;
      let answer: Answer | undefined;
      const carryOut = () => {
        answer ??= asked(store, known, ...args) as Answer;
        return answer;
      };
      questions.push({
        verb,
        form,
        carryOut,
        answer: () => told?.answered(carryOut()),
        fail: (error) => told?.failed(error),
      });
      return {
        tell(listener) {
          told = listener;
        },
      };
    };
    const promisedForm = (...args: Args) => promised(() => ask("promise", args));
    offerPending(promisedForm, (...args: Args) => ask("pending", args));
    return promisedForm;
  };

  const { reserve, settle } = store;
  Object.assign(store, { reserve: telling("reserve", reserve), settle: telling("settle", settle) });
  return {
    store: store as Store,
    questions,
    refuse(error: Error | undefined) {
      refusal = error;
    },
  };
}
