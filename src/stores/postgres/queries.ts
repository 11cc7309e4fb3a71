import { StoreError } from "../../core/errors.ts";
import type { BatchParameter } from "./arrays.ts";
import type { Batch, Database, Parameter, Query, Row } from "./database.ts";
import { storeError } from "./errors.ts";

/** Statements of the store's own. What goes wrong with them is a `StoreError`. */
export class Queries {
  readonly #query: Query;
  readonly #call: Query;
  readonly #batch: Batch;

  constructor({ query, call, batch }: Pick<Database, "query" | "call" | "batch">) {
    this.#query = query;
    this.#call = call;
    this.#batch = batch;
  }

  async all<R extends Row>(text: string, parameters: readonly Parameter[] = []): Promise<readonly R[]> {
    try {
      return await this.#query<R>(text, parameters);
    } catch (error) {
      throw storeError(error);
    }
  }

  /** For a statement that always answers with a row. */
  async one<R extends Row>(text: string, parameters: readonly Parameter[] = []): Promise<R> {
    return theOnly(await this.all<R>(text, parameters));
  }

  /** A function that answers with a row. */
  call<R extends Row>(text: string, parameters: readonly Parameter[]): Promise<R> {
    return this.#call<R>(text, parameters).then(theOnly, (error: unknown) => {
      throw storeError(error);
    });
  }

  /** A function that takes a batch of calls. */
  async batch<R extends Row>(name: string, parameters: readonly BatchParameter[]): Promise<readonly R[]> {
    try {
      return await this.#batch<R>(name, parameters);
    } catch (error) {
      throw storeError(error);
    }
  }
}

function theOnly<R>([row]: readonly R[]): R {
  if (row === undefined) throw new StoreError("a statement that always answers did not");
  return row;
}
