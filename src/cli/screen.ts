import { once } from "node:events";
import type { WriteStream } from "node:tty";

/** What is written to: a terminal in front of a person, or a file or program that wants text and nothing else. */
export class Screen {
  readonly isTerminal: boolean;
  readonly #stream: NodeJS.WriteStream;
  readonly #hasColours: boolean;
  readonly #env: NodeJS.ProcessEnv;

  constructor(stream: NodeJS.WriteStream, env: NodeJS.ProcessEnv) {
    this.#stream = stream;
    this.#env = env;
    this.isTerminal = stream.isTTY === true;
    // https://no-color.org: any value but none at all means no.
    this.#hasColours = this.isTerminal && !env.NO_COLOR && env.TERM !== "dumb";
  }

  /** Characters in a line; undefined where lines may be as long as they are. */
  get width(): number | undefined {
    if (!this.isTerminal) return undefined;
    const columns = (this.#stream as WriteStream).columns || Number(this.#env.COLUMNS);
    return columns > 0 ? columns : widthDefault;
  }

  /** Lines in view, where that is known. */
  get height(): number {
    return (this.#stream as WriteStream).rows || heightDefault;
  }

  paint(style: Style, text: string): string {
    return this.#hasColours ? `\u001b[${codes[style]}m${text}\u001b[0m` : text;
  }

  /** Waits for whoever reads, so that a slow reader does not fill the memory. */
  async write(text: string): Promise<void> {
    if (!this.#stream.write(text)) await once(this.#stream, "drain");
  }
}

const widthDefault = 80;
const heightDefault = 24;

export type Style = keyof typeof codes;

const codes = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, blue: 34, cyan: 36 } as const;

/**
 * A text from outside on one line, without what a terminal would obey: keys and reasons are written by others, and must
 * not be able to move the cursor of whoever looks at them.
 */
export function visible(text: string): string {
  return text.replace(/\p{C}/gu, "\ufffd");
}

/** The same for a text of several lines. */
export function visibleLines(text: string): string {
  return text
    .split(/\r?\n/)
    .map((line) => visible(line.replaceAll("\t", "    ")))
    .join("\n");
}

/**
 * A document as one line of JSON. JSON itself leaves some of what a terminal would obey as it is, and knows how to write
 * it in a way that no program minds.
 */
export function visibleJson(document: unknown): string {
  return JSON.stringify(document).replace(
    /[\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
