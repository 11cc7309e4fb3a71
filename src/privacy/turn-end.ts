import { atTurnEnd } from "../core/turn-end.ts";

/**
 * Does at the end of a turn of the event loop what came during it. Sealing answers one right after the other takes a
 * fraction of the time that it takes between all the other work of their requests: what it needs is at hand from the
 * second on. What follows from them, statements to a database or answers to clients, then goes out together as well.
 */
export class TurnEnd {
  #waiting: Waiting[] = [];

  /** Never throws; what the task throws, it rejects with. */
  soon<T>(task: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      // What it resolves with is what its own task does.
      const waiting = { task, resolve, reject } as Waiting;
      if (this.#waiting.push(waiting) === 1) atTurnEnd(this.#doAll);
    });
  }

  readonly #doAll = (): void => {
    const all = this.#waiting;
    this.#waiting = [];
    for (const { task, resolve, reject } of all) {
      try {
        task().then(resolve, reject);
      } catch (error) {
        reject(error);
      }
    }
  };
}

interface Waiting {
  readonly task: () => Promise<unknown>;
  readonly resolve: (value: unknown) => void;
  readonly reject: (reason: unknown) => void;
}
