import { EffectFailedError, PhaseError } from "../core/errors.ts";
import type { JsonText, Phase } from "../core/phase.ts";

/** An external call that is not done. */
export type Unfinished = Extract<Phase, { state: "begun" | "failed" }>;

/** The provider's own ids that a call has written down while it was under way. */
export class References {
  readonly #write: (reference: string) => Promise<void>;
  readonly #writes: Promise<unknown>[] = [];
  #latest: string | undefined;

  constructor(write: (reference: string) => Promise<void>) {
    this.#write = write;
  }

  async write(id: string): Promise<void> {
    if (typeof id !== "string" || id === "")
      throw new PhaseError("reference() needs the provider's id, a text");
    // One after the other, so that the last one said is the last one written.
    const before = this.#writes.at(-1);
    const writing = (async () => {
      await before?.catch(() => {});
      await this.#write(id);
      this.#latest = id;
    })();
    this.#writes.push(writing);
    await writing;
  }

  /** A write that was not awaited must not land on what is written next. */
  async settled(): Promise<void> {
    await Promise.allSettled(this.#writes);
  }

  noted<P extends Phase>(phase: P): P {
    return this.#latest === undefined ? phase : { ...phase, reference: this.#latest };
  }
}

/** What of an error is data: enough for a handler that looks at `code`, `type` or `status`. */
export function errorText(thrown: unknown): JsonText {
  if (!(thrown instanceof Error)) return JSON.stringify({ message: String(thrown) });
  const data: Record<string, unknown> = {
    name: thrown.name,
    message: thrown.message.slice(0, messageLengthMax),
  };
  for (const [property, value] of Object.entries(thrown)) {
    if (["string", "number", "boolean"].includes(typeof value) && String(value).length <= messageLengthMax) {
      data[property] = value;
    }
  }
  return JSON.stringify(data);
}

const messageLengthMax = 1_000;

/** The error of an earlier attempt, as far as it was data. */
export function revivedError(phase: Phase): Error {
  const { message, ...data } =
    "error" in phase && phase.error !== undefined
      ? (JSON.parse(phase.error) as { message?: string })
      : { message: undefined };
  return Object.assign(new EffectFailedError(message ?? `the call "${phase.name}" failed`), data);
}
