import { StoreError } from "../../core/errors.ts";
import type { BatchFunction, BatchParameter } from "./arrays.ts";
import type { Batch, Database, Parameter, Query, Row } from "./database.ts";
import { isReadOnly, storeError } from "./errors.ts";

/** Statements of the store's own. What goes wrong with them is a `StoreError`. */
export class Queries {
  readonly #query: Query;
  readonly #call: Query;
  readonly #batch: Batch;
  readonly #leaveReadOnly: () => void;
  /** See `Database`. */
  readonly keepsPlans: () => boolean;

  constructor(database: Pick<Database, "query" | "call" | "batch" | "keepsPlans" | "leaveReadOnly">) {
    this.#query = database.query;
    this.#call = database.call;
    this.#batch = database.batch;
    this.#leaveReadOnly = database.leaveReadOnly;
    this.keepsPlans = database.keepsPlans;
  }

  async all<R extends Row>(text: string, parameters: readonly Parameter[] = []): Promise<readonly R[]> {
    try {
      return await this.#query<R>(text, parameters);
    } catch (error) {
      throw this.#failed(error);
    }
  }

  /** For a statement that always answers with a row. */
  async one<R extends Row>(text: string, parameters: readonly Parameter[] = []): Promise<R> {
    return theOnly(await this.all<R>(text, parameters));
  }

  /** A function that answers with a row. */
  call<R extends Row>(text: string, parameters: readonly Parameter[]): Promise<R> {
    return this.#call<R>(text, parameters).then(theOnly, this.#fail);
  }

  /** A statement that answers with a row or with none, and whose plan may be kept. */
  planned<R extends Row>(text: string, parameters: readonly Parameter[]): Promise<R | undefined> {
    return this.#call<R>(text, parameters).then(([row]) => row, this.#fail);
  }

  /** A function that takes a batch of calls. */
  async batch<R extends Row>(
    called: BatchFunction,
    parameters: readonly BatchParameter[],
  ): Promise<readonly R[]> {
    try {
      return await this.#batch<R>(called, parameters);
    } catch (error) {
      throw this.#failed(error);
    }
  }

  readonly #fail = (error: unknown): never => {
    throw this.#failed(error);
  };

  #failed(error: unknown): StoreError {
    if (isReadOnly(error)) this.#leaveReadOnly();
    return storeError(error);
  }
}

function theOnly<R>([row]: readonly R[]): R {
  if (row === undefined) throw new StoreError("a statement that always answers did not");
  return row;
}
