/** A place in JSON: the names of members, one after the other; `everyItem` for the items of an array. */
export type JsonPath = readonly string[];

const everyItem = "[*]";

/** Reads a path such as `card.number` or `items[*].secret`; undefined if it is none. */
export function parseJsonPath(text: unknown): JsonPath | undefined {
  if (typeof text !== "string" || !/^(?:[^.[\]]+|\[\*\])(?:\.[^.[\]]+|\[\*\])*$/.test(text)) return undefined;
  return text.match(/[^.[\]]+|\[\*\]/g) ?? undefined;
}

/** What is looked for from one place on: all paths at once, put in order when a route is made, not for each answer. */
export class Places {
  /** The value itself is one that is replaced. */
  readonly isHere: boolean;
  readonly members: ReadonlyMap<string, Places>;
  /** A path that forgets an array is looked for in each of its items: too much is better than too little. */
  readonly items: Places;

  constructor(paths: readonly JsonPath[]) {
    const steps = new Set(paths.flatMap(([step]) => step ?? []));
    const below = (name: string) => paths.filter(([step]) => step === name).map((path) => path.slice(1));
    this.isHere = paths.some((path) => path.length === 0);
    this.members = new Map([...steps].map((step) => [step, new Places(below(step))]));
    const inItems = () => paths.map((path) => (path[0] === everyItem ? path.slice(1) : path));
    this.items = steps.has(everyItem) ? new Places(inItems()) : this;
  }
}

/**
 * The JSON text with the values at these paths replaced, and every other byte as it was: a number that is read and
 * written again may be another one. Undefined if the text is not JSON; the text itself if there was nothing to replace.
 */
export function redactJson(text: string, places: Places): string | undefined {
  try {
    JSON.parse(text);
    return new Redacting(text).run(places);
  } catch {
    // Not JSON, or nested more deeply than can be walked: nothing may be thrown once the handler has answered.
    return undefined;
  }
}

/** The name that a string of JSON is; most of them escape nothing. */
function nameIn(quoted: string): string {
  return quoted.includes("\\") ? (JSON.parse(quoted) as string) : quoted.slice(1, -1);
}

const replacement = JSON.stringify("[redacted]");

/** Walks over a text that is known to be JSON. It goes down no further than the paths do. */
class Redacting {
  readonly #text: string;
  #at = 0;
  #redacted = "";
  /** Up to where the text has been taken over. */
  #takenTo = 0;

  constructor(text: string) {
    this.#text = text;
  }

  run(places: Places): string {
    this.#value(places);
    return this.#redacted + this.#text.slice(this.#takenTo);
  }

  #value({ isHere, members, items }: Places): void {
    this.#skipSpace();
    if (isHere) {
      this.#redacted += this.#text.slice(this.#takenTo, this.#at) + replacement;
      this.#skipValue();
      this.#takenTo = this.#at;
    } else if (members.size > 0 && this.#text[this.#at] === "{") this.#object(members);
    else if (members.size > 0 && this.#text[this.#at] === "[") this.#each("]", () => this.#value(items));
    else this.#skipValue();
  }

  #object(members: Places["members"]): void {
    this.#each("}", () => {
      const nameAt = this.#at;
      this.#skipString();
      const name = nameIn(this.#text.slice(nameAt, this.#at));
      this.#skipSpace();
      this.#at += 1; // The colon.
      // A name that comes twice is redacted twice.
      const below = members.get(name);
      if (below !== undefined) this.#value(below);
      else {
        this.#skipSpace();
        this.#skipValue();
      }
    });
  }

  /** Comes to every member or item of what begins here. */
  #each(end: "}" | "]", visit: () => void): void {
    this.#at += 1;
    this.#skipSpace();
    while (this.#text[this.#at] !== end) {
      visit();
      this.#skipSpace();
      if (this.#text[this.#at] === ",") this.#at += 1;
      this.#skipSpace();
    }
    this.#at += 1;
  }

  /** Without going down into it, however deep it is. */
  #skipValue(): void {
    let depth = 0;
    do {
      const character = this.#text[this.#at];
      if (character === '"') this.#skipString();
      else if (character === "{" || character === "[") {
        depth += 1;
        this.#at += 1;
      } else if (character === "}" || character === "]") {
        depth -= 1;
        this.#at += 1;
      } else this.#skipPlain();
    } while (depth > 0);
  }

  /** A number, a word, or what stands between values. */
  #skipPlain(): void {
    const next = this.#at + 1;
    plainEnd.lastIndex = next;
    this.#at = plainEnd.exec(this.#text)?.index ?? this.#text.length;
  }

  /** Most strings have no quote within them, and are left in one leap. */
  #skipString(): void {
    let end = this.#at;
    do end = this.#text.indexOf('"', end + 1);
    while (this.#isEscaped(end));
    this.#at = end + 1;
  }

  /** Whether an odd number of backslashes stands before it. */
  #isEscaped(at: number): boolean {
    let before = at - 1;
    while (this.#text[before] === "\\") before -= 1;
    return (at - before) % 2 === 0;
  }

  #skipSpace(): void {
    while (isSpace(this.#text[this.#at])) this.#at += 1;
  }
}

const plainEnd = /["{}[\],\s]/g;

function isSpace(character: string | undefined): boolean {
  return character === " " || character === "\n" || character === "\r" || character === "\t";
}
