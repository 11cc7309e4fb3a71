import type { Runtime } from "./runtime.ts";

const everyMs = 10_000;
const kindsMax = 1_000; // Tenants are kinds too, and there may be any number of them.
const others = "others";

/** Tells the first of a kind from those that follow, which are only counted for as long as they keep coming. */
export class Repeats {
  readonly #runtime: Runtime;
  readonly #times = new Map<string, number>();

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** Notes one. How many came after it is told to `tell` every ten seconds, until none does. */
  isFirst(kind: string, tell: (times: number) => void): boolean {
    const isKnown = this.#times.has(kind) || this.#times.size < kindsMax;
    const name = isKnown ? kind : others;
    const times = this.#times.get(name);
    this.#times.set(name, (times ?? -1) + 1);
    if (times !== undefined) return false;
    this.#wait(name, tell);
    return true;
  }

  #wait(name: string, tell: (times: number) => void): void {
    const count = () => {
      const times = this.#times.get(name) ?? 0;
      if (times === 0) {
        this.#times.delete(name);
        return;
      }
      this.#times.set(name, 0);
      tell(times);
      this.#wait(name, tell);
    };
    this.#runtime.setTimer(count, everyMs, { background: true });
  }
}
