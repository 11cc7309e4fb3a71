import { isArray } from "./arrays.ts";
import { binaryArray, type CallParameter, callMessages } from "./call-messages.ts";
import type { Parameter, Row } from "./database.ts";

/**
 * One call of a function, for a pool of `pg`. What the driver does for every statement and is not needed here is left
 * out: columns are described once for each connection instead of with every answer, everything is sent in one piece,
 * and arrays are written where they are sent from. That is a fifth less of this process's time for a call that is
 * alone. Queries of one's own are part of the driver's interface; its cursors and copies are made like this. It reads
 * like any other statement to whoever stands in between, to log it or to count it.
 */
export class PgCall {
  /** The name under which the statement is prepared, if it is. */
  readonly name: string | undefined;
  readonly text: string;
  readonly query_timeout: number;
  /** Set by the driver, and called once. */
  callback: ((error: Error | null, answer?: { rows: Row[] }) => void) | undefined;
  /** What was handed to it. */
  answer: { rows: Row[] } | undefined;
  readonly #parameters: readonly CallParameter[];
  readonly #answers: (readonly (string | null)[])[] = [];
  #columns: readonly Column[] | undefined;

  constructor({ name, text, parameters }: Called, query_timeout: number) {
    this.name = name;
    this.text = text;
    this.#parameters = parameters;
    this.query_timeout = query_timeout;
  }

  get values(): Parameter[] {
    return plainValues(this.#parameters);
  }

  submit(connection: PgConnection): Error | null {
    const { name = "", text } = this;
    const isPrepared = name !== "" && connection.parsedStatements[name] !== undefined;
    this.#columns = isPrepared ? describedOn(connection).get(text) : undefined;
    try {
      connection.stream.write(
        callMessages(name, this.#parameters, {
          prepare: isPrepared ? undefined : text,
          describe: this.#columns === undefined,
        }),
      );
      return null;
    } catch (error) {
      return error as Error;
    }
  }

  handleRowDescription({ fields }: { readonly fields: readonly Field[] }): void {
    this.#columns = fields.map(({ name, dataTypeID }) => ({ name, read: readers.get(dataTypeID) ?? asText }));
  }

  handleDataRow({ fields }: { readonly fields: readonly (string | null)[] }): void {
    this.#answers.push(fields);
  }

  /** Only now everything that was said is committed. */
  handleReadyForQuery(connection: PgConnection): void {
    const columns = this.#columns ?? [];
    describedOn(connection).set(this.text, columns);
    this.answer = { rows: this.#answers.map((fields) => rowOf(columns, fields)) };
    this.callback?.(null, this.answer);
  }

  handleError(error: Error): void {
    this.callback?.(error);
  }

  handleCommandComplete(): void {}
  handlePortalSuspended(): void {}
  handleEmptyQuery(): void {}
  handleCopyInResponse(): void {}
  handleCopyData(): void {}
}

export interface Called {
  readonly name: string | undefined;
  readonly text: string;
  readonly parameters: readonly CallParameter[];
}

/** The parameters of a call for a driver that writes them itself. */
export function plainValues(parameters: readonly CallParameter[]): Parameter[] {
  return parameters.map((parameter) => (isArray(parameter) ? binaryArray(parameter) : parameter));
}

/**
 * Whether a pool takes calls: its clients have to, and so does whoever stands in between. That is tried once, with a
 * statement that does nothing, after the first plain one was answered: so there is a connection that is free.
 */
export class ShortWay {
  readonly #pool: CallPool;
  readonly #query_timeout: number;
  #isOpen: boolean | undefined;
  #isTrying = false;

  constructor(pool: CallPool, query_timeout: number) {
    this.#pool = pool;
    this.#query_timeout = query_timeout;
  }

  get isOpen(): boolean {
    return this.#isOpen ?? false;
  }

  /** Never rejects. */
  async tryOnce(): Promise<void> {
    if (this.#isOpen !== undefined || this.#isTrying) return;
    this.#isTrying = true;
    try {
      const client = await this.#pool.connect();
      const isTaken = takesCalls(client);
      client.release();
      this.#isOpen = isTaken && (await this.#isAnswered());
    } catch {
      // No connection, no answer: it is tried again after the next statement.
    }
    this.#isTrying = false;
  }

  /** Somebody may send a copy that has lost its parameters, or may not wait for what does not look like a promise. */
  async #isAnswered(): Promise<boolean> {
    const call = new PgCall({ name: undefined, text: tryText, parameters: [1] }, this.#query_timeout);
    try {
      const answer = await this.#pool.query(call);
      return answer === call.answer && answer?.rows[0]?.latchkey_try === 1;
    } catch (error) {
      // Refused by the server: something else has arrived there.
      if (/^[0-9A-Z]{5}$/.test(String((error as { code?: unknown }).code))) return false;
      throw error;
    }
  }
}

const tryText = "SELECT $1::int4 AS latchkey_try";

interface CallPool {
  connect(): Promise<{ release(): void }>;
  query(call: PgCall): Promise<{ rows: Row[] }>;
}

/** Not so in the driver's native variant, in its pipeline mode, and in what only looks like it. */
function takesCalls(client: object): boolean {
  const { connection, pipeline } = client as { connection?: Partial<PgConnection>; pipeline?: unknown };
  if (pipeline || connection === undefined) return false;
  return typeof connection.stream?.write === "function" && typeof connection.parsedStatements === "object";
}

/** The part of a connection of `pg` that calls need. */
interface PgConnection {
  readonly stream: { write(bytes: Uint8Array): unknown };
  /** Kept by the driver: the texts of the statements that are prepared, by name. */
  readonly parsedStatements: Readonly<Record<string, string>>;
}

interface Field {
  readonly name: string;
  readonly dataTypeID: number;
}

interface Column {
  readonly name: string;
  read(text: string): Row[string];
}

/** What the statements that were prepared on a connection answer, by text. */
const described = new WeakMap<object, Map<string, readonly Column[]>>();

function describedOn(connection: object): Map<string, readonly Column[]> {
  let statements = described.get(connection);
  if (statements === undefined) {
    statements = new Map();
    described.set(connection, statements);
  }
  return statements;
}

function rowOf(columns: readonly Column[], fields: readonly (string | null)[]): Row {
  const row: Record<string, Row[string]> = {};
  for (const [place, { name, read }] of columns.entries()) {
    const text = fields[place] ?? null;
    row[name] = text === null ? null : read(text);
  }
  return row;
}

const asText = (text: string) => text;

/** The types that our functions answer with, by the numbers that Postgres has for them. */
const readers: ReadonlyMap<number, Column["read"]> = new Map<number, Column["read"]>([
  [16, (text) => text === "t"],
  [17, (text) => Buffer.from(text.slice(2), "hex")],
  [23, Number],
  [701, Number],
]);
