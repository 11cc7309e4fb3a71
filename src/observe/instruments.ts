import { problemKinds } from "../core/problem.ts";
import type { BreakerState, LatchkeyEvent, LimitName, ReserveOutcome, StoreVerb } from "../engine/events.ts";

/** One thing that is measured, and all that is said about it: OpenTelemetry and Prometheus are both fed from here. */
export interface Instrument {
  readonly name: string;
  readonly kind: "counter" | "gauge" | "histogram";
  /** As UCUM spells it: `s` for seconds, and what is counted in braces. */
  readonly unit: string;
  readonly help: string;
  /** At most one, and with few values, so that nobody's metrics bill depends on what a client sends. */
  readonly label?: Label;
  /** Upper bounds of a histogram's buckets, in its unit. */
  readonly bounds?: readonly number[];
}

export interface Label {
  readonly name: string;
  /** All of them; or `tenants`, of which only the busiest are shown. */
  readonly values: readonly string[] | "tenants";
}

/** What every name begins with. */
const prefix = "api.idempotency.";

/** How arriving requests were answered; each outcome is an instrument of its own. */
const reserveHelp: Record<ReserveOutcome, string> = {
  created: "Requests with a new key: executed.",
  replay: "Duplicates of a finished request: answered with the stored answer.",
  in_progress: "Duplicates of a request that was still running: refused, or given up waiting.",
  key_misuse: "Keys that came back with another request: refused.",
  failed_retry: "Retries of a request that had failed: executed again.",
  unknown: "Retries of a request whose outcome is not known: refused.",
  takeover: "Requests whose owner had died: executed again.",
  expired_retry: "Keys whose answer had expired or was busted: executed anew.",
  claimed: "Accepted requests that a worker came for: executed.",
  accepted: "Requests that were accepted for later, or are under way: answered 202.",
  absent: "Workers that came for a request that was not there.",
  store_down: "Requests that were refused because the store did not answer.",
  unprotected: "Requests that ran without protection because the store did not answer.",
  limited: "Requests that were refused because their tenant was over a limit.",
};

export const reserveOutcomes = Object.keys(reserveHelp) as readonly ReserveOutcome[];

export function reserveName(outcome: ReserveOutcome): `api.idempotency.reserve.${ReserveOutcome}.count` {
  return `${prefix}reserve.${outcome}.count`;
}

/** Every value of a union, checked in both directions. */
function valuesOf<Value extends string>(values: Record<Value, true>): readonly Value[] {
  return Object.keys(values) as Value[];
}

const storeVerbs = valuesOf<StoreVerb>({
  reserve: true,
  settle: true,
  renew: true,
  advance: true,
  transact: true,
  read: true,
  watch: true,
  sweep: true,
  reap: true,
  claim: true,
  resolve: true,
  bust: true,
  list: true,
  audit: true,
  outbox: true,
  notes: true,
  forget: true,
  counts: true,
});

const limitNames = valuesOf<LimitName>({ newKeys: true, lookUps: true, activeKeys: true, storedBytes: true });

const settledStates = valuesOf<Extract<LatchkeyEvent, { type: "settled" }>["as"]>({
  completed: true,
  failed_retryable: true,
  unknown: true,
});

const workerNames = ["sweeper", "reaper", "relay", "reconciler", "completer"];

/** What a label says that is none of its values. */
export const otherLabel = "other";

/** What the gauge says about each state. */
export const breakerLevels: Record<BreakerState, number> = { closed: 0, "half-open": 1, open: 2 };

const waitBounds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const executeBounds = [...waitBounds, 60, 300, 600]; // A handler may take ten minutes unless its route says otherwise.

/** All but those of `reserve`. */
const others = {
  "store.error.count": counter(
    "{error}",
    "Questions that the store did not answer, or answered with an error.",
    {
      name: "verb",
      values: storeVerbs,
    },
  ),
  "zombie_key.count": counter(
    "{key}",
    "Owners that were found dead: swept, taken over, or met by a duplicate.",
  ),
  "ttl_pruned.count": counter(
    "{key}",
    "Records that were removed, or marked, at the end of their retention.",
  ),
  "reconcile.scheduled.count": counter(
    "{key}",
    "Outcomes that became unknown, for reconciliation to find out.",
  ),
  "reconcile.resolved.count": counter("{key}", "Unknown outcomes that were settled by somebody who knew."),
  "reconcile.failed.count": counter(
    "{question}",
    "Questions about an unknown outcome that nobody could answer.",
  ),
  "settled.count": counter("{execution}", "Executions whose outcome the store has confirmed.", {
    name: "as",
    values: settledStates,
  }),
  "lease_lost.count": counter(
    "{execution}",
    "Executions whose outcome counted for nothing: another owner had the key.",
  ),
  "execution_timeout.count": counter("{execution}", "Handlers that took longer than their route allows."),
  "wait.duration": histogram("How long duplicates waited for the first request's answer.", waitBounds),
  "execute.duration": histogram(
    "How long executions took, from asking for the key to the handler's outcome.",
    executeBounds,
  ),
  "limited.count": counter("{request}", "Requests that were refused because of a tenant's limit.", {
    name: "limit",
    values: limitNames,
  }),
  "refused.count": counter("{request}", "Requests that were refused before the store was asked about them.", {
    name: "code",
    values: Object.keys(problemKinds),
  }),
  "breaker.state": gauge("1", "The breaker around the store: 0 closed, 1 half-open, 2 open."),
  "breaker.opened.count": counter("{opening}", "How often the breaker around the store has opened."),
  "busted.count": counter("{key}", "Answers that an operator has taken away."),
  "outbox.delivered.count": counter("{message}", "Messages that were delivered."),
  "outbox.delivery_failed.count": counter("{delivery}", "Deliveries that failed and will be tried again."),
  "outbox.dead_letter.count": counter("{message}", "Messages that nobody tries to deliver any more."),
  "outbox.waiting": gauge("{message}", "Messages that wait to be delivered."),
  "outbox.dead": gauge("{message}", "Dead letters that nobody has requeued."),
  "outbox.oldest_due": gauge("s", "How long the oldest message that is due has been waiting."),
  "unknown.waiting": gauge("{key}", "Unknown outcomes that reconciliation still asks about."),
  "unknown.escalated": gauge("{key}", "Unknown outcomes that an operator has to settle."),
  "unknown.oldest": gauge("s", "How long ago the oldest request with an unknown outcome came."),
  "worker.error.count": counter("{error}", "Rounds of workers, and pieces of work in them, that failed.", {
    name: "worker",
    values: [...workerNames, otherLabel],
  }),
  "tenant.duplicates": gauge(
    "{request}",
    "Duplicates in the last five minutes, of the tenants with the most: replayed, refused as running or unknown, misused.",
    { name: "tenant", values: "tenants" },
  ),
} as const satisfies Record<string, Omit<Instrument, "name">>;

export type InstrumentName = `${typeof prefix}${keyof typeof others}` | ReturnType<typeof reserveName>;

/** Everything that is measured, by name. */
export const instruments: ReadonlyMap<InstrumentName, Instrument> = new Map<InstrumentName, Instrument>([
  ...reserveOutcomes.map((outcome) =>
    named(reserveName(outcome), counter("{request}", reserveHelp[outcome])),
  ),
  ...Object.entries(others).map(([name, instrument]) =>
    named(`${prefix}${name as keyof typeof others}`, instrument),
  ),
]);

function named(name: InstrumentName, instrument: Omit<Instrument, "name">): [InstrumentName, Instrument] {
  return [name, { name, ...instrument }];
}

function counter(unit: string, help: string, label?: Label): Omit<Instrument, "name"> {
  return { kind: "counter", unit, help, ...(label === undefined ? {} : { label }) };
}

function gauge(unit: string, help: string, label?: Label): Omit<Instrument, "name"> {
  return { kind: "gauge", unit, help, ...(label === undefined ? {} : { label }) };
}

function histogram(help: string, bounds: readonly number[]): Omit<Instrument, "name"> {
  return { kind: "histogram", unit: "s", help, bounds };
}

/**
 * The name as Prometheus has it: underscores for dots, `_total` for what only grows, and the unit at the end.
 *
 * @example
 * prometheusName(instrument); // "api_idempotency_reserve_created_total", "api_idempotency_wait_duration_seconds"
 */
export function prometheusName({ name, unit }: Pick<Instrument, "name" | "unit">): string {
  const text = name.replace(/\.count$/, ".total").replaceAll(".", "_");
  return unit === "s" ? `${text}_seconds` : text;
}
