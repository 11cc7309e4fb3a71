import { loggedError } from "../../engine/logged-error.ts";
import type { WorkerView } from "../views.ts";

interface Health {
  rounds: number;
  lastRoundAt: number | null;
  counts: Record<string, number>;
  errors: number;
  lastError: string | null;
  lastErrorAt: number | null;
}

/** How the workers of this process are. */
export class WorkerHealth {
  readonly #byName = new Map<string, Health>();

  round(worker: string, counts: Readonly<Record<string, number>>, now: number): void {
    const health = this.#of(worker);
    if (health === undefined) return;
    health.rounds += 1;
    health.lastRoundAt = now;
    for (const [kind, count] of Object.entries(counts)) {
      health.counts[kind] = (health.counts[kind] ?? 0) + count;
    }
  }

  failed(worker: string, error: unknown, now: number): void {
    const health = this.#of(worker);
    if (health === undefined) return;
    health.errors += 1;
    health.lastError = loggedError(error).message;
    health.lastErrorAt = now;
  }

  get views(): readonly WorkerView[] {
    return [...this.#byName].map(([name, health]) => ({ name, ...health }));
  }

  /** Undefined for more than a note could hold; nobody has so many. */
  #of(worker: string): Health | undefined {
    const known = this.#byName.get(worker);
    if (known !== undefined || this.#byName.size >= workersMax) return known;
    const health = {
      rounds: 0,
      lastRoundAt: null,
      counts: {},
      errors: 0,
      lastError: null,
      lastErrorAt: null,
    };
    this.#byName.set(worker, health);
    return health;
  }
}

const workersMax = 32;
