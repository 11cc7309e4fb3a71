import type { Store } from "../../core/store.ts";

/** A store under test, and how time passes on its clock. */
export interface StoreHarness<Tx = unknown> {
  readonly store: Store<Tx>;
  /** Lets `ms` pass on the store's clock: really, or by moving a clock that the store was given. */
  passTime(ms: number): Promise<void>;
  /** A business table in the store's database. A store with transactions needs one. */
  readonly business?: Business<Tx>;
  close(): Promise<void>;
}

/** A table of ids, as an application would have one beside Latchkey's. */
export interface Business<Tx = unknown> {
  /** Writes one row in the transaction of an atomic phase. */
  insert(tx: Tx, id: string): unknown | Promise<unknown>;
  /** Every row that is committed. */
  ids(): Promise<readonly string[]>;
}

/** One thing that every store must do. */
export interface ContractCase {
  readonly name: string;
  run(harness: StoreHarness): Promise<void>;
}
