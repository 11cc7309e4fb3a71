/**
 * When a handler that answers through an object is over: every call of it has come to its end, it has ended its answer, and
 * the response is closed. Hooks and streams make answers after a handler has returned, and who listens for the end of a
 * response may still ask whose it was.
 */
export class HandlerEnd {
  readonly #isOver: () => void;
  #answersBy: AnswersBy | undefined;
  /** Calls that have not come to their end. */
  #calls = 0;
  #hasEnded = false;
  #isClosed = false;

  constructor(isOver: () => void) {
    this.#isOver = isOver;
  }

  /** From now on each call of the handler, if there is any, is told of; nobody can say when one is over of which none is. */
  expect(answersBy: AnswersBy): void {
    this.#answersBy = answersBy;
  }

  /**
   * Calls a handler whose end is known if it gives a promise, or fails at once. One that gives anything else may go on for as
   * long as it likes. The promise is another one: whoever leaves it alone must hear of its failure.
   */
  watch<T>(handler: () => T): T {
    this.#calls += 1;
    let given: T;
    try {
      given = handler();
    } catch (error) {
      this.returned();
      throw error;
    }
    // Of a promise, and not of what can only be waited for: asking a reply of Fastify's makes it wait for its end.
    if (!(given instanceof Promise)) return given;
    return given.then(
      (value) => {
        this.returned();
        return value;
      },
      (error) => {
        this.returned();
        throw error;
      },
    ) as T;
  }

  /** A call that is watched has come to its end, whether or not it has answered. */
  returned(): void {
    this.#calls -= 1;
    // What comes back too late is nobody's answer any more.
    if (this.#answersBy === "framework" && this.#isClosed) this.#hasEnded = true;
    this.#look();
  }

  /** The handler has said that its answer is complete, whether or not anybody was still waiting for it. */
  ended(): void {
    this.#hasEnded = true;
    this.#look();
  }

  /** The client has its answer, and all who listen for that have been told. */
  closed(): void {
    this.#isClosed = true;
    this.#look();
  }

  #look(): void {
    const isKnown = this.#answersBy !== undefined && this.#calls === 0;
    if (isKnown && this.#hasEnded && this.#isClosed) this.#isOver();
  }
}

/** Who makes an answer of what a handler comes back with; one that answers itself may still be about to when its time is up. */
export type AnswersBy = "itself" | "framework";
