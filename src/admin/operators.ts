import type { IncomingMessage } from "node:http";
import { ConfigError } from "../core/errors.ts";
import type { Runtime } from "../engine/runtime.ts";
import { bearerToken, sameToken } from "../http/token.ts";
import { Refusal } from "./refusal.ts";

/** Somebody who may use the admin API. */
export interface Operator {
  /** How the audit trail names them. */
  readonly name: string;
  /** What they send as `Authorization: Bearer …`: at least 16 visible ASCII characters, such as 32 random bytes in hex. */
  readonly token: string;
  /** They may look, and change nothing. */
  readonly readOnly?: boolean | undefined;
}

/** Tells who is asking, by the token that came with the request, and makes guessing slow. */
export class Operators {
  readonly #operators: readonly Operator[];
  readonly #runtime: Runtime;
  /** How many wrong guesses of each address have not been answered yet. No more is remembered of anybody. */
  readonly #waiting = new Map<string, number>();
  #waitingInAll = 0;

  constructor(operators: readonly Operator[], runtime: Runtime) {
    assertOperators(operators);
    this.#operators = operators;
    this.#runtime = runtime;
  }

  async asking(req: IncomingMessage): Promise<Operator> {
    const token = bearerToken(req.headers.authorization);
    if (token === undefined || token === "") {
      throw unauthorized("token-missing", "Send your token as Authorization: Bearer …");
    }
    const address = req.socket?.remoteAddress ?? "";
    const waiting = this.#waiting.get(address) ?? 0;
    // Before the token is looked at: a right one would otherwise show itself by being answered at once.
    if (waiting >= guessesPerAddress || this.#waitingInAll >= guessesInAll) {
      throw new Refusal(
        429,
        "too-many-guesses",
        "Too many wrong tokens came from this address. Wait a second.",
        {
          headers: { "retry-after": "1" },
        },
      );
    }
    const operator = this.#named(token);
    if (operator !== undefined) return operator;
    await this.#delayed(address, waiting);
    throw unauthorized(
      "token-wrong",
      "Nobody has this token. Check it, or ask whoever configured the admin API.",
    );
  }

  /** Compares with every token, whichever is the right one, so that the time says nothing. */
  #named(token: string): Operator | undefined {
    let named: Operator | undefined;
    for (const operator of this.#operators) if (sameToken(operator.token, token)) named = operator;
    return named;
  }

  async #delayed(address: string, waiting: number): Promise<void> {
    this.#waiting.set(address, waiting + 1);
    this.#waitingInAll += 1;
    await new Promise<void>((resolve) => {
      this.#runtime.setTimer(resolve, guessMs, { background: true });
    });
    this.#waitingInAll -= 1;
    const left = (this.#waiting.get(address) ?? 1) - 1;
    if (left === 0) this.#waiting.delete(address);
    else this.#waiting.set(address, left);
  }
}

function unauthorized(code: string, detail: string): Refusal {
  return new Refusal(401, code, detail, { headers: { "www-authenticate": "Bearer" } });
}

function assertOperators(operators: unknown): asserts operators is readonly Operator[] {
  if (!Array.isArray(operators) || operators.length === 0) {
    throw new ConfigError(
      'the admin API needs to know who may use it: pass operators: [{ name: "ada", token: … }]',
    );
  }
  const names = new Set<string>();
  const tokens = new Set<string>();
  for (const operator of operators as readonly unknown[]) {
    const { name, token, readOnly, ...rest } = (operator ?? {}) as Partial<Operator>;
    if (typeof name !== "string" || !isOperatorName(name)) {
      throw new ConfigError(
        `an operator needs a name of 1 to ${nameLengthMax} characters: it is in the audit trail`,
      );
    }
    if (typeof token !== "string" || !isOperatorToken(token)) {
      throw new ConfigError(
        `the token of operator "${name}" must be at least 16 visible ASCII characters without spaces, such as 32 random bytes in hex`,
      );
    }
    // A word that is not understood must not be a right: "readonly" would let its operator change everything.
    const [unknown] = Object.keys(rest);
    if (unknown !== undefined) {
      throw new ConfigError(
        `operator "${name}" has "${unknown}", which is not known: use name, token and readOnly`,
      );
    }
    if (readOnly !== undefined && typeof readOnly !== "boolean") {
      throw new ConfigError(`readOnly of operator "${name}" must be true or false`);
    }
    if (names.has(name)) throw new ConfigError(`two operators are named "${name}": rename one`);
    if (tokens.has(token)) {
      throw new ConfigError(
        `operator "${name}" has the token of another: the audit trail could not tell them apart`,
      );
    }
    names.add(name);
    tokens.add(token);
  }
}

/** Whether the audit trail can name somebody by it. */
export function isOperatorName(name: string): boolean {
  return name.trim() !== "" && name.length <= nameLengthMax;
}

/** Whether it can be sent in a header, and not be guessed. */
export function isOperatorToken(token: string): boolean {
  return /^[!-~]{16,}$/.test(token);
}

export const nameLengthMax = 100;

// Half a second for each, and no more than sixteen at once: 32 guesses in a second from one address. A token of 16
// characters would take longer than anybody lives.
const guessMs = 500;
const guessesPerAddress = 16;
const guessesInAll = 1_000;
