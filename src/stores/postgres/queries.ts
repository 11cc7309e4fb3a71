import { StoreError } from "../../core/errors.ts";
import type { Parameter, Query, Row } from "./database.ts";
import { storeError } from "./errors.ts";

/** Statements of the store's own. What goes wrong with them is a `StoreError`. */
export class Queries {
  readonly #query: Query;

  constructor(query: Query) {
    this.#query = query;
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
    const [row] = await this.all<R>(text, parameters);
    if (row === undefined) throw new StoreError("a statement that always answers did not");
    return row;
  }
}
