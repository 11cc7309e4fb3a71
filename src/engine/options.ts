import type { RecordId } from "../core/record.ts";
import type { Lease, Reservation, ReserveRequest, Settlement, Store } from "../core/store.ts";
import type { BreakerOptions } from "./breaker.ts";
import type { LimitsOptions } from "./limits/options.ts";
import type { ReplayCacheOptions } from "./replay-cache.ts";
import type { Runtime } from "./runtime.ts";

/** What an engine is made of. */
export interface EngineOptions {
  readonly store: Store;
  readonly runtime: Runtime;
  readonly leaseMs: number;
  /** A store that takes longer has not answered. */
  readonly storeTimeoutMs: number;
  /** Keeps completed answers in this process; left out, the store is asked for each. */
  readonly cache?: ReplayCacheOptions | undefined;
  /** What each tenant may do; left out, everything. */
  readonly limits?: LimitsOptions | undefined;
  /** When a store that is sick is not asked any more; `false` for never. */
  readonly breaker?: BreakerOptions | false | undefined;
  /** What a client's key is called in the store; its own name, if left out. */
  readonly nameOf?: ((id: RecordId) => string) | undefined;
  /** There if the store seals what it is given. */
  readonly sealing?: Sealing | undefined;
}

/** What a store that seals can do in parts, so that no promise has to be made for it on the path of every request. */
export interface Sealing {
  /** What the store is told in place of an outcome that it is told at the end of the turn, together with others. */
  foresee(lease: Lease, settlement: Settlement): Settlement;
  /** As the store's `reserve`, but the answer is as it is stored. */
  reserveSealed(request: ReserveRequest): Reservation | Promise<Reservation>;
  /** Opens such an answer, or throws or rejects if it cannot. Nearly always there is nothing to open. */
  openReservation(request: ReserveRequest, reservation: Reservation): Reservation | Promise<Reservation>;
}
