import type { RecordId } from "../../core/record.ts";
import type { Runtime } from "../runtime.ts";

/** Which of these have a record; undefined if the store did not say. Never rejects. */
type Exist = (ids: readonly RecordId[]) => Promise<readonly boolean[] | undefined>;

/**
 * Tells for tenants that are over a limit whether a key is there. Nearly none of them are, and there may be thousands a
 * second: they are gathered, and many are asked about at once, so that a flood of refusals costs the store next to
 * nothing, and everybody else nothing at all.
 */
export class Lookout {
  readonly #runtime: Runtime;
  readonly #exist: Exist;
  #waiting: Waiting[] = [];
  #isUnderWay = false;

  constructor(runtime: Runtime, exist: Exist) {
    this.#runtime = runtime;
    this.#exist = exist;
  }

  /** Whether there may be a record under the key: also if it could not be found out. */
  mayExist({ scope, key }: RecordId): Promise<boolean> {
    return new Promise((answer) => {
      this.#waiting.push({ id: { scope, key }, answer });
      if (!this.#isUnderWay) this.#lookSoon();
    });
  }

  #lookSoon(): void {
    this.#isUnderWay = true;
    this.#runtime.setTimer(() => void this.#look(), gatheringMs);
  }

  async #look(): Promise<void> {
    const batch = this.#waiting;
    this.#waiting = [];
    const exist = await this.#exist(batch.map(({ id }) => id));
    for (const [index, { answer }] of batch.entries()) answer(exist?.[index] ?? true);
    if (this.#waiting.length > 0) this.#lookSoon();
    else this.#isUnderWay = false;
  }
}

interface Waiting {
  readonly id: RecordId;
  readonly answer: (mayExist: boolean) => void;
}

/** Whoever is over a limit is in no hurry, and a retry among them notices less than this. */
const gatheringMs = 10;
