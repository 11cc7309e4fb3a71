import type { Pending } from "../../core/pending.ts";
import { encodeProgress } from "../../core/phase.ts";
import type { Advance, Lease, RenewAnswer, Reservation, SettleAnswer, Settlement } from "../../core/store.ts";
import { byRecord, Gathering, type Verb } from "../gathering.ts";
import { completingAlone, isNew, reservingAlone } from "./alone.ts";
import {
  type AdvanceCall,
  advanceBatch,
  type Expectation,
  type GiveUpCall,
  giveUpBatch,
  renewBatch,
  reserveBatch,
} from "./batches.ts";
import { type CompleteCall, completeBatch } from "./completing.ts";
import { isRefusal } from "./errors.ts";
import type { Queries } from "./queries.ts";
import { type ReserveCall, reserve } from "./reserving.ts";
import { advance, renew, settle } from "./settling.ts";

/** What every request asks of the database. */
export interface Calls {
  reserve(call: ReserveCall): Promise<Reservation> | Pending<Reservation>;
  settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> | Pending<SettleAnswer>;
  advance(lease: Lease, step: Advance): Promise<RenewAnswer>;
  renew(leases: readonly Lease[], leaseMs: number): Promise<readonly RenewAnswer[]>;
}

/** One statement for each call, and none of the functions for requests. */
export function plainCalls(
  queries: Queries,
  reserveStatement: string,
  { partitioned, callsOfNewMin, pagesMin }: Seams & { readonly partitioned: boolean },
): Calls {
  const options = { byFunctions: false, partitioned, callsOfNewMin, pagesMin };
  const reserveAlone = reservingAlone(queries, reserveStatement, options);
  const completeAlone = completingAlone(queries, options);
  const isLeft = false;
  return {
    // A worker comes for one record that is there, and must not make it.
    reserve: (call) =>
      call.request.mode === "claim"
        ? reserve(queries, reserveStatement, call)
        : reserveAlone(call, { isLeft }),
    settle: (lease, settlement) =>
      settlement.kind === "complete"
        ? completeAlone({ lease, settlement }, { isLeft })
        : settle(queries, lease, settlement),
    advance: (lease, step) => advance(queries, lease, step),
    renew: (leases, leaseMs) => renew(queries, leases, leaseMs),
  };
}

/** For tests, which ask one by one, and of tables that are nearly empty. */
export interface Seams {
  /** 0 for a batch of one that looks like any other. */
  readonly aloneMax?: number;
  readonly callsOfNewMin?: number;
  readonly pagesMin?: number;
}

/** One statement for all calls that are concurrent; see `Gathering`. */
export function gatheredCalls(
  queries: Queries,
  reserveStatement: string,
  { partitioned, aloneMax = 1, callsOfNewMin, pagesMin }: Seams & { readonly partitioned: boolean },
): Calls {
  const gathering = new Gathering({ isRefusal, aloneMax, flightsMax, quietMax, smallCrowdMax });
  const options = { byFunctions: true, partitioned, callsOfNewMin, pagesMin };
  const reserving = reserveVerb(queries, reservingAlone(queries, reserveStatement, options), partitioned);
  const completing = completeVerb(queries, completingAlone(queries, options));
  const givingUp: Verb<GiveUpCall, SettleAnswer> = {
    alone: ({ lease, settlement }) => settle(queries, lease, settlement),
    together: (calls) => giveUpBatch(queries, calls),
    isUnordered: false,
    isUrgent: true,
    bytes: ({ settlement }) => bytesPerCall + settlement.reason.length,
  };
  const advancing: Verb<AdvanceCall, RenewAnswer> = {
    alone: ({ lease, step }) => advance(queries, lease, step),
    together: (calls) => advanceBatch(queries, calls),
    isUnordered: false,
    isUrgent: true,
    bytes: ({ encoded }) => bytesPerCall + (encoded?.length ?? 0),
  };
  return {
    reserve(call) {
      // A worker comes for one record that is there, and must not make it.
      if (call.request.mode === "claim") return reserve(queries, reserveStatement, call);
      return gathering.pend(reserving, call.request, call);
    },
    settle: (lease, settlement) =>
      settlement.kind === "complete"
        ? gathering.pend(completing, lease, { lease, settlement })
        : gathering.pend(givingUp, lease, { lease, settlement }),
    advance: (lease, step) =>
      gathering.ask(advancing, lease, { lease, step, encoded: encodeProgress(step.progress) }),
    // All of a process's leases in one statement already, so nothing is gathered.
    renew: (leases, leaseMs) => renewAll(queries, leases, leaseMs),
  };
}

function reserveVerb(
  queries: Queries,
  alone: Verb<ReserveCall, Reservation>["alone"],
  partitioned: boolean,
): Verb<ReserveCall, Reservation> {
  // Retries come in waves. What the last batches found says whether the next one is likely to find anything.
  let expectation: Expectation = "some";
  let batchesOfNew = 0;
  return {
    alone,
    async together(calls) {
      const answers = await reserveBatch(queries, calls, expectation).catch((error: unknown) => {
        // Whatever made it fail, those who come next must not all fail with it.
        expectation = "some";
        throw error;
      });
      const found = answers.filter((answer) => !isNew(answer)).length;
      batchesOfNew = found === 0 ? batchesOfNew + 1 : 0;
      if (found * 2 > answers.length) expectation = "most";
      else expectation = batchesOfNew >= batchesOfNewMin && !partitioned ? "none" : "some";
      return answers;
    },
    isUnordered: true,
    isUrgent: false,
    bytes: ({ request: { request } }) =>
      bytesPerCall + (request === undefined ? 0 : request.body.length + bytesPerCall),
  };
}

function completeVerb(
  queries: Queries,
  alone: Verb<CompleteCall, SettleAnswer>["alone"],
): Verb<CompleteCall, SettleAnswer> {
  // Where leases are renewed before they end, rows are not where they were reserved. A batch of such rows looks for them
  // twice.
  let batchesByName = 0;
  let pause = pauseMin;
  return {
    alone,
    async together(calls) {
      const byPlace = batchesByName === 0;
      if (!byPlace) batchesByName -= 1;
      const { answers, strays } = await completeBatch(queries, calls, { byPlace });
      if (strays) {
        batchesByName = pause;
        pause = Math.min(pause * 2, pauseMax);
      } else if (byPlace) pause = Math.max(pause / 2, pauseMin);
      return answers;
    },
    isUnordered: false,
    isUrgent: true,
    bytes: ({ settlement: { response } }) =>
      bytesPerCall + (response.kind === "full" ? response.body.length : 0),
  };
}

/**
 * Locked in the order in which every batch is. What a batch did not find held, or found changed in just this moment, is
 * asked for again without it: a lease must not be given up by mistake.
 */
async function renewAll(
  queries: Queries,
  leases: readonly Lease[],
  leaseMs: number,
): Promise<readonly RenewAnswer[]> {
  if (leases.length < 2) return renew(queries, leases, leaseMs);
  const order = leases.map((lease, index) => ({ lease, index })).sort((a, b) => byRecord(a.lease, b.lease));
  const sorted = order.map(({ lease }) => lease);
  const answers: RenewAnswer[] = leases.map(() => "held");
  const isHeld = await renewBatch(queries, sorted, leaseMs);
  const doubtful = order.filter((_, position) => !isHeld(position));
  const again = await renew(
    queries,
    doubtful.map(({ lease }) => lease),
    leaseMs,
  );
  for (const [position, { index }] of doubtful.entries()) answers[index] = again[position] ?? "lost";
  return answers;
}

/** Measured with 256 callers: a tenth more than with two, and as much as with four. */
const flightsMax = 3;

/**
 * Measured with 2 to 48 callers, and with 500 to 16,000 arrivals a second. One batch at a time is a quarter more than two for
 * four callers and a sixth more for eight, and less for 24. A second call that does not wait for the first spares those who
 * come rarely a tenth of their time.
 */
const quietMax = 2;
const smallCrowdMax = 16;

/**
 * How many batches look for their rows after one that did not find most in their places; twice as many each time it happens
 * again.
 */
const pauseMin = 8;
const pauseMax = 1024;

/** One that is not new makes its whole batch be inserted twice, so it takes some to believe that there are none. */
const batchesOfNewMin = 8;

/** About what the names, the fingerprint and the numbers of a call take. */
const bytesPerCall = 300;
