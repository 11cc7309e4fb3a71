import { type RecordId, recordIdText } from "../core/record.ts";
import type { Unwatch } from "../core/store.ts";

/** Who in this process waits for which record. */
export class Watchers {
  readonly #wakes = new Map<string, Set<() => void>>();
  /** What was told last without anybody here waiting for it: whoever waits may be about to say so. */
  readonly #unheard = new Set<string>();

  add(id: RecordId, wake: () => void): Unwatch {
    const text = recordIdText(id);
    const wakes = this.#wakes.get(text) ?? new Set();
    this.#wakes.set(text, wakes.add(wake));
    return () => {
      wakes.delete(wake);
      if (wakes.size === 0 && this.#wakes.get(text) === wakes) this.#wakes.delete(text);
    };
  }

  wake(id: RecordId): void {
    if (this.#wakes.size === 0) return;
    for (const wake of this.#wakes.get(recordIdText(id)) ?? []) wake();
  }

  /** As `wake`, and whoever does not wait yet can ask `wasMissed` later. */
  wakeOrRemember(id: RecordId): void {
    const text = recordIdText(id);
    const wakes = this.#wakes.get(text);
    if (wakes !== undefined) {
      for (const wake of wakes) wake();
      return;
    }
    this.#unheard.delete(text);
    this.#unheard.add(text);
    const [oldest] = this.#unheard;
    if (this.#unheard.size > unheardMax && oldest !== undefined) this.#unheard.delete(oldest);
  }

  /** Whether somebody told of this record of late, when nobody here was waiting for it. */
  wasMissed(id: RecordId): boolean {
    return this.#unheard.delete(recordIdText(id));
  }
}

/** Far more than what all processes can tell of while one of them goes from an answer to the next line of its code. */
const unheardMax = 1_024;
