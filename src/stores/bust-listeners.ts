import type { BustListener } from "../core/store.ts";

/** Who in this process is told of busts. Knows whether they are heard at the moment, for those who come later. */
export class BustListeners implements BustListener {
  readonly #listeners = new Set<BustListener>();
  #isListening = false;

  add(listener: BustListener): void {
    this.#listeners.add(listener);
    if (this.#isListening) listener.listening();
  }

  listening(): void {
    this.#isListening = true;
    for (const listener of this.#listeners) listener.listening();
  }

  busted(name: string): void {
    for (const listener of this.#listeners) listener.busted(name);
  }

  interrupted(): void {
    this.#isListening = false;
    for (const listener of this.#listeners) listener.interrupted();
  }

  /**
   * Nothing that was kept up to now is to be given any more, as after an interruption. While busts are not heard, everybody
   * knows that already, and must not be told that they are.
   */
  startOver(): void {
    if (!this.#isListening) return;
    this.interrupted();
    this.listening();
  }
}
