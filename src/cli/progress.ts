import type { Screen } from "./screen.ts";

/**
 * How far long work has come, on one line that is written over and over. Nothing at all where nobody is watching, or
 * where the answer itself goes to the same terminal.
 */
export class Progress {
  readonly #screen: Screen | undefined;
  readonly #what: string;
  readonly #startedAt = performance.now();
  #drawnAt = Number.NEGATIVE_INFINITY;
  #isDrawn = false;

  /** `what` is what is counted, such as "records". */
  constructor(screen: Screen, what: string, options: { readonly isQuiet?: boolean } = {}) {
    this.#screen = screen.isTerminal && !options.isQuiet ? screen : undefined;
    this.#what = what;
  }

  /** `total` is left out where nobody knows how many there are. */
  show(done: number, total?: number): void {
    const now = performance.now();
    const isLast = done === total;
    if (this.#screen === undefined || (!isLast && now - this.#drawnAt < redrawMs)) return;
    this.#drawnAt = now;
    this.#isDrawn = true;
    const seconds = ((now - this.#startedAt) / 1000).toFixed(1);
    const counted = total === undefined ? `${number(done)}` : `${number(done)} of ${number(total)}`;
    const bar = total === undefined ? "" : `${barOf(done, total)} `;
    void this.#screen.write(`\r\u001b[K${bar}${counted} ${this.#what}, ${seconds} s`);
  }

  /** Takes the line away again. */
  end(): void {
    if (this.#isDrawn) void this.#screen?.write("\r\u001b[K");
    this.#isDrawn = false;
  }
}

const redrawMs = 80; // Smooth to the eye, and nothing beside the work.
const barWidth = 24;

function barOf(done: number, total: number): string {
  const filled = total === 0 ? barWidth : Math.min(barWidth, Math.round((barWidth * done) / total));
  return `[${"#".repeat(filled)}${"-".repeat(barWidth - filled)}]`;
}

function number(value: number): string {
  return value.toLocaleString("en-US");
}
