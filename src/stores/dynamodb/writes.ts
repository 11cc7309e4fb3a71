import type { ConditionCheck, Delete, Put, TransactWriteItem, Update } from "@aws-sdk/client-dynamodb";
import { PhaseError } from "../../core/errors.ts";

/**
 * What an atomic phase on DynamoDB hands its business writes to. Nothing is sent before the phase is over: then all of
 * it is written in one transaction together with the phase, if the lease is still held, or nothing is. There is nothing
 * to read with; read before the phase, and hand over what must still be so as conditions.
 */
export interface DynamoWrites {
  put(write: Put): void;
  update(write: Update): void;
  delete(write: Delete): void;
  check(condition: ConditionCheck): void;
}

/** The writes of one phase, in the order in which they were handed over. */
export class CollectedWrites implements DynamoWrites {
  readonly items: TransactWriteItem[] = [];
  #isOver = false;

  put(write: Put): void {
    this.#add({ Put: write });
  }

  update(write: Update): void {
    this.#add({ Update: write });
  }

  delete(write: Delete): void {
    this.#add({ Delete: write });
  }

  check(condition: ConditionCheck): void {
    this.#add({ ConditionCheck: condition });
  }

  /** What comes later would be written by nobody. */
  end(): void {
    this.#isOver = true;
  }

  #add(item: TransactWriteItem): void {
    if (this.#isOver) {
      throw new PhaseError(
        "an atomic phase handed over a write after it was over: await everything that it does, and do not keep `tx`",
      );
    }
    this.items.push(item);
  }
}
