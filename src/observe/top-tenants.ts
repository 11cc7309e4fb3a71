import { tenantScopeOf } from "../core/scope.ts";
import type { Cancel, Runtime } from "../engine/runtime.ts";
import { SpaceSaving } from "./space-saving.ts";

const sliceMs = 60_000;
const slices = 5; // Long enough to be looked at, short enough that yesterday's trouble is not on top of today's.

/** For each that is shown, so that the counts of those are nearly exact. */
const capacityFactor = 10;

/** The tenants with the most duplicates of the last minutes, whatever the number of tenants. */
export class TopTenants {
  readonly #k: number;
  /** One for each minute; the current one is counted into. */
  readonly #slices: SpaceSaving[];
  #current: SpaceSaving;
  #at = 0;
  #lastScope = "";
  /** How often it came since it was counted. */
  #times = 0;
  readonly #cancel: Cancel;

  constructor(k: number, runtime: Runtime) {
    this.#k = k;
    this.#slices = Array.from({ length: slices }, () => new SpaceSaving(k * capacityFactor));
    this.#current = this.#slices[0] as SpaceSaving;
    // A timer turns the page, so that no request has to look at the clock for it.
    let cancel: Cancel = () => {};
    const wait = () => {
      cancel = runtime.setTimer(
        () => {
          this.#turn();
          wait();
        },
        sliceMs,
        { background: true },
      );
    };
    wait();
    this.#cancel = () => cancel();
  }

  /** Counts a duplicate. Most come in bursts of one tenant, which are counted together. */
  add(scope: string): void {
    if (scope !== this.#lastScope) {
      this.#count();
      this.#lastScope = scope;
    }
    this.#times += 1;
  }

  /** At most `k`, the busiest first. What is counted is what is certain: never more than there were. */
  top(): readonly { readonly tenant: string; readonly duplicates: number }[] {
    this.#count();
    const certain = new Map<string, number>();
    for (const slice of this.#slices) {
      for (const { name, count, error } of slice.entries()) {
        certain.set(name, (certain.get(name) ?? 0) + count - error);
      }
    }
    return [...certain]
      .map(([tenant, duplicates]) => ({ tenant, duplicates }))
      .sort((one, other) => other.duplicates - one.duplicates)
      .slice(0, this.#k);
  }

  close(): void {
    this.#cancel();
  }

  #count(): void {
    if (this.#times > 0 && this.#k > 0) this.#current.add(tenantScopeOf(this.#lastScope), this.#times);
    this.#times = 0;
  }

  #turn(): void {
    this.#count();
    this.#at = (this.#at + 1) % slices;
    this.#current = this.#slices[this.#at] as SpaceSaving;
    this.#current.clear();
  }
}
