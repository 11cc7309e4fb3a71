import type { Store } from "../../core/store.ts";

/** A store under test, and how time passes on its clock. */
export interface StoreHarness {
  readonly store: Store;
  /** Lets `ms` pass on the store's clock: really, or by moving a clock that the store was given. */
  passTime(ms: number): Promise<void>;
  close(): Promise<void>;
}

/** One thing that every store must do. */
export interface ContractCase {
  readonly name: string;
  run(harness: StoreHarness): Promise<void>;
}
