import { type RecordId, recordIdText } from "../core/record.ts";
import type { Unwatch } from "../core/store.ts";

/** Who in this process waits for which record. */
export class Watchers {
  readonly #wakes = new Map<string, Set<() => void>>();
  /** What was told last: whoever waits for it may be about to say so. */
  readonly #heard = new Set<string>();

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

  /** As `wake`, and whoever does not wait yet can ask `wasHeard` later. */
  wakeAndRemember(id: RecordId): void {
    const text = recordIdText(id);
    this.#heard.delete(text);
    this.#heard.add(text);
    const [oldest] = this.#heard;
    if (this.#heard.size > heardMax && oldest !== undefined) this.#heard.delete(oldest);
    this.wake(id);
  }

  /** Whether somebody told of this record of late. */
  wasHeard(id: RecordId): boolean {
    return this.#heard.has(recordIdText(id));
  }
}

/** Far more than what all processes can tell of while one of them goes from an answer to the next line of its code. */
const heardMax = 1_024;
