import type { LatchkeyEvent, ReserveOutcome } from "../engine/events.ts";
import type { Latchkey } from "../latchkey.ts";
import { Histogram, type HistogramReading } from "./histogram.ts";
import {
  breakerLevels,
  type Instrument,
  type InstrumentName,
  instruments,
  otherLabel,
  reserveName,
  reserveOutcomes,
} from "./instruments.ts";
import { type MetricsOptions, resolveMetricsOptions } from "./options.ts";
import { StoreGauges, type StoreReading } from "./store-gauges.ts";
import { TopTenants } from "./top-tenants.ts";

/** What one instrument shows right now. */
export type Reading =
  | { readonly instrument: Instrument; readonly samples: readonly Sample[] }
  | { readonly instrument: Instrument; readonly histogram: HistogramReading };

export interface Sample {
  /** The value of the instrument's label, if it has one. */
  readonly label?: string;
  readonly value: number;
}

/** What durations are recorded in; an exporter may have its own. */
export interface Durations {
  readonly wait: Recording;
  readonly execute: Recording;
}

interface Recording {
  record(seconds: number): void;
}

/** By the value of a counter's label; what has no label is under the empty text. */
type Counts = Record<string, number>;

export const durationNames = {
  wait: "api.idempotency.wait.duration",
  execute: "api.idempotency.execute.duration",
} as const satisfies Record<keyof Durations, InstrumentName>;

/**
 * Everything that is measured about one Latchkey. It listens on the path of every request, so an event is a switch and
 * an increment, and makes no garbage; what is shown is put together when somebody looks.
 */
export class Meters {
  readonly #reserved = Object.fromEntries(reserveOutcomes.map((outcome) => [outcome, 0])) as Record<
    ReserveOutcome,
    number
  >;
  readonly #counters = new Map<InstrumentName, Counts>();
  readonly #zombies = this.#counter("api.idempotency.zombie_key.count");
  readonly #storeErrors = this.#counter("api.idempotency.store.error.count");
  readonly #pruned = this.#counter("api.idempotency.ttl_pruned.count");
  readonly #scheduled = this.#counter("api.idempotency.reconcile.scheduled.count");
  readonly #resolved = this.#counter("api.idempotency.reconcile.resolved.count");
  readonly #unanswered = this.#counter("api.idempotency.reconcile.failed.count");
  readonly #settled = this.#counter("api.idempotency.settled.count");
  readonly #leasesLost = this.#counter("api.idempotency.lease_lost.count");
  readonly #timeouts = this.#counter("api.idempotency.execution_timeout.count");
  readonly #limited = this.#counter("api.idempotency.limited.count");
  readonly #refused = this.#counter("api.idempotency.refused.count");
  readonly #breakerOpened = this.#counter("api.idempotency.breaker.opened.count");
  readonly #busted = this.#counter("api.idempotency.busted.count");
  readonly #delivered = this.#counter("api.idempotency.outbox.delivered.count");
  readonly #deliveriesFailed = this.#counter("api.idempotency.outbox.delivery_failed.count");
  readonly #deadLetters = this.#counter("api.idempotency.outbox.dead_letter.count");
  readonly #workerErrors = this.#counter("api.idempotency.worker.error.count");
  readonly #histograms = new Map<InstrumentName, Histogram>();
  readonly #durations: Durations;
  #breaker: number;
  readonly #tenants: TopTenants;
  readonly #tenantLabel: (tenant: string) => string;
  readonly #storeGauges: StoreGauges;
  readonly #unsubscribe: () => void;

  constructor(latchkey: Latchkey, options: MetricsOptions, durations?: Durations) {
    const { tenantsMax, tenantLabel } = resolveMetricsOptions(options);
    this.#tenantLabel = tenantLabel;
    const { breaker } = latchkey.health();
    this.#breaker = breakerLevels[breaker === "off" ? "closed" : breaker];
    this.#tenants = new TopTenants(tenantsMax, latchkey.engine.runtime);
    this.#storeGauges = new StoreGauges(latchkey);
    this.#durations = durations ?? { wait: this.#histogram("wait"), execute: this.#histogram("execute") };
    this.#unsubscribe = latchkey.subscribe((event) => this.#listen(event));
  }

  close(): void {
    this.#unsubscribe();
    this.#tenants.close();
  }

  /** What every instrument shows. One that has nothing to show, such as the outbox of a store without one, is left out. */
  async read(): Promise<readonly Reading[]> {
    const gauges = this.#gauges(await this.#storeGauges.read());
    const readings: Reading[] = [];
    for (const [name, instrument] of instruments) {
      const histogram = this.#histograms.get(name);
      if (histogram !== undefined) {
        readings.push({ instrument, histogram: histogram.read() });
        continue;
      }
      const samples = gauges.get(name) ?? this.#samplesOf(name, instrument);
      if (samples.length > 0) readings.push({ instrument, samples });
    }
    return readings;
  }

  #listen(event: LatchkeyEvent): void {
    switch (event.type) {
      case "reserved":
        this.#reserved[event.outcome] += 1;
        switch (event.outcome) {
          case "replay":
          case "in_progress":
          case "key_misuse":
            this.#tenants.add(event.scope);
            return;
          case "unknown":
            this.#tenants.add(event.scope);
            if (!event.discovered) return;
            add(this.#zombies);
            add(this.#scheduled);
            return;
          case "takeover":
            add(this.#zombies);
            return;
          default:
            return;
        }
      case "settled":
        add(this.#settled, event.as);
        this.#durations.execute.record(event.ms / 1000);
        if (event.as === "unknown") add(this.#scheduled);
        return;
      case "waited":
        this.#durations.wait.record(event.ms / 1000);
        return;
      case "store_error":
        add(this.#storeErrors, event.verb);
        return;
      case "lease_lost":
        add(this.#leasesLost);
        return;
      case "execution_timeout":
        add(this.#timeouts);
        return;
      case "swept":
        add(this.#zombies, "", event.unknown + event.retryable);
        add(this.#scheduled, "", event.unknown);
        return;
      case "reaped":
        add(this.#pruned, "", event.deleted + event.expired);
        return;
      case "reconciled":
        add(isAnswer(event.outcome) ? this.#resolved : this.#unanswered);
        return;
      case "limited":
        add(this.#limited, event.limit);
        // Such a request does not get as far as the engine, which counts the others.
        if (event.limit === "lookUps") this.#reserved.limited += 1;
        return;
      case "refused":
        add(this.#refused, event.code);
        return;
      case "breaker":
        this.#breaker = breakerLevels[event.state];
        if (event.state === "open") add(this.#breakerOpened);
        return;
      case "busted":
        add(this.#busted);
        return;
      case "delivered":
        add(this.#delivered);
        return;
      case "delivery_failed":
        add(this.#deliveriesFailed);
        return;
      case "dead_letter":
        add(this.#deadLetters);
        return;
      case "worker_error":
        add(this.#workerErrors, event.worker in this.#workerErrors ? event.worker : otherLabel);
        return;
      case "phase":
      case "handler_failed":
      case "forgotten":
      case "worker":
        return;
      default:
        event satisfies never;
    }
  }

  #counter(name: InstrumentName): Counts {
    const values = instruments.get(name)?.label?.values ?? [""];
    const counts = Object.fromEntries([...values].map((value) => [value, 0]));
    this.#counters.set(name, counts);
    return counts;
  }

  #histogram(of: keyof Durations): Histogram {
    const name = durationNames[of];
    const histogram = new Histogram(instruments.get(name)?.bounds ?? []);
    this.#histograms.set(name, histogram);
    return histogram;
  }

  #samplesOf(name: InstrumentName, { label }: Instrument): Sample[] {
    const outcome = outcomeOfName.get(name);
    if (outcome !== undefined) return [{ value: this.#reserved[outcome] }];
    return Object.entries(this.#counters.get(name) ?? {}).map(([value, count]) =>
      label === undefined ? { value: count } : { label: value, value: count },
    );
  }

  #gauges({ outbox, unknown }: StoreReading): Map<InstrumentName, Sample[]> {
    const gauges = new Map<InstrumentName, Sample[]>([
      ["api.idempotency.breaker.state", [{ value: this.#breaker }]],
      ["api.idempotency.tenant.duplicates", this.#tenantSamples()],
    ]);
    const set = (name: InstrumentName, value: number) => gauges.set(name, [{ value }]);
    if (outbox !== undefined) {
      set("api.idempotency.outbox.waiting", outbox.waiting);
      set("api.idempotency.outbox.dead", outbox.dead);
      set("api.idempotency.outbox.oldest_due", outbox.oldestDueMs / 1000);
    }
    if (unknown !== undefined) {
      set("api.idempotency.unknown.waiting", unknown.waiting);
      set("api.idempotency.unknown.escalated", unknown.escalated);
      set("api.idempotency.unknown.oldest", unknown.oldestMs / 1000);
    }
    return gauges;
  }

  /** Tenants that are shown under one label are shown together. */
  #tenantSamples(): Sample[] {
    const byLabel = new Map<string, number>();
    for (const { tenant, duplicates } of this.#tenants.top()) {
      const label = this.#labelOf(tenant);
      byLabel.set(label, (byLabel.get(label) ?? 0) + duplicates);
    }
    return [...byLabel].map(([label, value]) => ({ label, value }));
  }

  /** A label that cannot be made must not cost the whole page, nor show what it was to hide. */
  #labelOf(tenant: string): string {
    try {
      const label: unknown = this.#tenantLabel(tenant);
      return typeof label === "string" ? label : otherLabel;
    } catch {
      return otherLabel;
    }
  }
}

const outcomeOfName = new Map<string, ReserveOutcome>(
  reserveOutcomes.map((outcome) => [reserveName(outcome), outcome]),
);

/** `label` is always one of the values that the table knows. */
function add(counts: Counts, label = "", by = 1): void {
  counts[label] = (counts[label] ?? 0) + by;
}

function isAnswer(outcome: Extract<LatchkeyEvent, { type: "reconciled" }>["outcome"]): boolean {
  switch (outcome) {
    case "completed":
    case "not-executed":
    case "effect-done":
    case "resume":
      return true;
    case "still-unknown":
    case "escalated":
      return false;
    default:
      return outcome satisfies never;
  }
}
