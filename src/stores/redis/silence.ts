/**
 * Tells when a connection is silent though something was asked on it, as when the host behind it has vanished: nobody
 * closes such a connection. Each lane is a connection, or a part of what goes over one.
 */
export class Silence {
  readonly #lanes = new Map<string, Lane>();
  readonly #tickMs: number;
  readonly #silent: () => void;
  #ticksMax = ticksPerLimit;
  #timer: NodeJS.Timeout | undefined;

  constructor({ limitMs, silent }: { readonly limitMs: number; readonly silent: () => void }) {
    this.#tickMs = limitMs / ticksPerLimit;
    this.#silent = silent;
  }

  /** Answers may be this much later from now on, because the server was asked to wait. */
  allow(waitMs: number): void {
    this.#ticksMax = Math.max(this.#ticksMax, ticksPerLimit + Math.ceil(waitMs / this.#tickMs));
  }

  /** Notes that something was asked. Whatever comes back, an error as well, is an answer. */
  watch<Answer>(name: string, asked: Promise<Answer>): Promise<Answer> {
    const lane = this.#laneOf(name);
    lane.unanswered += 1;
    const answered = () => {
      lane.silentTicks = 0;
      lane.unanswered -= 1;
      if (lane.unanswered === 0 && this.#lanes.get(name) === lane) this.#lanes.delete(name);
    };
    asked.then(answered, answered);
    return asked;
  }

  /** What was asked before is no longer waited for. */
  forget(): void {
    this.#lanes.clear();
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #laneOf(name: string): Lane {
    const known = this.#lanes.get(name);
    if (known !== undefined) return known;
    const lane = { unanswered: 0, silentTicks: 0 };
    this.#lanes.set(name, lane);
    this.#timer ??= setInterval(() => this.#tick(), this.#tickMs).unref();
    return lane;
  }

  /** Ticks are counted, not time: a process that was held up itself has to hear the answers first that are there. */
  #tick(): void {
    // It outlives a lull of less than a tick, so that a command costs no timer.
    if (this.#lanes.size === 0) {
      this.forget();
      return;
    }
    let isSilent = false;
    for (const lane of this.#lanes.values()) {
      lane.silentTicks += 1;
      isSilent ||= lane.silentTicks > this.#ticksMax;
    }
    if (isSilent) this.#silent();
  }
}

interface Lane {
  unanswered: number;
  silentTicks: number;
}

/** The limit is kept to within a quarter. */
const ticksPerLimit = 4;
