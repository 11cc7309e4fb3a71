export type { Business, ContractCase, StoreHarness } from "./contract/harness.ts";
export { type Fault, type FaultyStore, faultyStore } from "./faulty-store.ts";
export { type ManualClock, manualClock, seededRandom } from "./manual-clock.ts";
export { runStoreContract, storeContract } from "./store-contract.ts";
