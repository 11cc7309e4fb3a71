import { type RecordId, recordIdText } from "../core/record.ts";
import type { Unwatch } from "../core/store.ts";

/** Who in this process waits for which record. */
export class Watchers {
  readonly #wakes = new Map<string, Set<() => void>>();

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
}
