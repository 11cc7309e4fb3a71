import { StoreError } from "../../core/errors.ts";
import type { Listen } from "./database.ts";
import { channel } from "./statements/sql.ts";

/** Hears notifications through the driver's own listener, which connects again by itself. */
export class Listener {
  readonly #listen: Listen;
  readonly #heard: (payload: string) => void;
  #started: ReturnType<Listen> | undefined;
  #isListening = false;

  constructor(options: { readonly listen: Listen; readonly heard: (payload: string) => void }) {
    this.#listen = options.listen;
    this.#heard = options.heard;
  }

  /** Resolves when notifications are heard, rejects when they are not yet. */
  async ready(): Promise<void> {
    // Asked for only once: even after a first failure the driver goes on trying, and would then hear twice.
    this.#started ??= this.#listen(channel, {
      heard: this.#heard,
      listening: () => {
        this.#isListening = true;
      },
    });
    await this.#started.catch((cause) => {
      if (!this.#isListening) throw new StoreError("notifications cannot be heard yet", { cause });
    });
  }

  get isHeard(): boolean {
    return this.#isListening;
  }

  async close(): Promise<void> {
    const started = await this.#started?.catch(() => undefined);
    await started?.stop();
  }
}
