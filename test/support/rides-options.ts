import type { Receipt, Ride } from "../../examples/rocket-rides/books/books.ts";
import type { AuditEntry } from "../../src/core/audit.ts";

/** Where the books of a ride service are. */
export type BooksAddress =
  | { readonly kind: "sqlite"; readonly path: string }
  | { readonly kind: "postgres"; readonly url: string };

/** How test/fixtures/rides-server.ts is told what to be: as JSON, its only argument. */
export interface RidesServerOptions {
  readonly books: BooksAddress;
  readonly providerUrl: string;
  readonly providerDeduplicates: boolean;
  /** Makes the tables, which all the others expect. */
  readonly isFirst: boolean;
  /** Where each point at which a process stops is written down, before it stops. */
  readonly stops: string;
}

export type FromRides =
  | { readonly type: "listening"; readonly port: number }
  /** A watched request came to this point. */
  | { readonly type: "passed"; readonly point: string }
  /** A request came to the point where it is to stay. */
  | { readonly type: "parked"; readonly key: string };

export type ToRides =
  /** Sent to a service that was only standing by: its workers start. */
  | { readonly type: "work" }
  /** Kills the process, and with it whatever is parked in it. */
  | { readonly type: "kill" };

/** The headers by which a request says what is to happen to it, or to the process that executes it. */
export const stopHeaders = {
  /** Every point is told to the parent. */
  watch: "x-test-watch",
  /** At which point it happens. */
  at: "x-test-stop-at",
  how: "x-test-stop-how",
} as const;

/** `park` keeps the request where it is until the process is killed; the others are for the whole process. */
export type StopHow = "SIGKILL" | "SIGSTOP" | "park";

/** Written down by a process just before it stops: for the request that stops it, and for each one parked in it. */
export interface Stop {
  readonly key: string;
  readonly point: string;
  readonly signal: "SIGKILL" | "SIGSTOP";
  readonly pid: number;
  /** How long the request had been parked there. */
  readonly heldMs: number;
}

/**
 * Short, so that a test need not wait for long; above what a busy machine takes from a process now and then. The store is
 * not waited for any longer either.
 */
export const leaseMs = 1_000;

/** Longer than a request takes to reach the provider on a machine that is busy with everything else. */
export const reconcileBackoffMs = 800;

/** The provider is not waited for any longer. */
export const providerTimeoutMs = 800;

/** Where the fixture tells what is in its books, and what became of one record. */
export const bookPaths = { state: "/test/books", record: "/test/records/" } as const;

export interface BooksState {
  readonly rides: readonly Ride[];
  readonly receipts: readonly Receipt[];
  /** What the audit records say, by ride. */
  readonly actions: Readonly<Record<string, readonly string[]>>;
  /** Messages that are not delivered yet, and those that never will be. */
  readonly waiting: number;
  readonly dead: number;
}

export interface RecordStory {
  readonly state: string;
  /** The latest first. */
  readonly audit: readonly AuditEntry[];
  /** What went wrong in the process that tells this, the latest last. */
  readonly trouble: readonly string[];
}
