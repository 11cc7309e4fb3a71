export { type Fault, type FaultyStore, faultyStore } from "./faulty-store.ts";
export { type ManualClock, manualClock, seededRandom } from "./manual-clock.ts";
export { type ContractCase, runStoreContract, type StoreHarness, storeContract } from "./store-contract.ts";
