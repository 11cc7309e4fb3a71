import assert from "node:assert/strict";
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

/** One thing that every store must do, or every store that has what it needs. */
export interface ContractCase {
  readonly name: string;
  readonly needs?: Need;
  run(harness: StoreHarness): Promise<void>;
}

/** What a store may lack, if it says so. */
export type Need = "transactions" | "push" | "bust news" | "bust generation" | "outbox push";

/** Whether a store has it; the verbs and what it says about itself must agree. */
export function has(store: Store, need: Need): boolean {
  const { capabilities, transact, outbox, watch } = store;
  switch (need) {
    case "transactions":
      assert.equal(transact !== undefined, capabilities.transactions, "transact, and what the store says");
      assert.equal(outbox !== undefined, capabilities.transactions, "outbox, and what the store says");
      return capabilities.transactions;
    case "push":
      assert.equal(watch !== undefined, capabilities.push, "watch, and what the store says");
      return capabilities.push;
    case "bust news":
      return store.onBusted !== undefined;
    case "bust generation":
      assert.ok(
        store.bustGeneration === undefined || store.onBusted !== undefined,
        "bustGeneration needs onBusted",
      );
      return store.bustGeneration !== undefined;
    case "outbox push":
      return outbox?.watch !== undefined;
    default:
      return need satisfies never;
  }
}
