import { type Faults, faultsOf, type ScenarioId } from "./scenarios.ts";
import type { PaymentSummary, PaymentView, PlaygroundChange, ProcessState, TraceEntry } from "./trace.ts";

const requestsMax = 200; // As much as a person can look at, and as a page draws without effort.
const entriesMax = 20 * requestsMax; // A request has about ten; a bug must not fill the memory.

/** Every payment that was begun on the page, and what has happened to it. Only the latest are kept. */
export class Payments {
  readonly #payments = new Map<string, Payment>();
  readonly #listeners = new Set<(change: PlaygroundChange) => void>();
  #latestOrder = 1_000;

  begin(about: {
    readonly scenario: ScenarioId;
    readonly isProtected: boolean;
    readonly amount: number;
  }): PaymentSummary {
    this.#latestOrder += 1;
    const payment = new Payment(String(this.#latestOrder), about);
    this.#payments.set(payment.order, payment);
    this.#forgetOldest();
    this.#tell({ kind: "payment", payment: payment.summary(), entry: null });
    return payment.summary();
  }

  faults(order: string): Faults | undefined {
    return this.#payments.get(order)?.faults;
  }

  summary(order: string): PaymentSummary | undefined {
    return this.#payments.get(order)?.summary();
  }

  /** The order that is paid with this key. */
  orderOf(key: string): string | undefined {
    for (const payment of this.#payments.values()) if (payment.key === key) return payment.order;
    return undefined;
  }

  /** The first request shows which key its client has chosen. */
  useKey(order: string, key: string | null): void {
    const payment = this.#payments.get(order);
    if (payment !== undefined) payment.key ??= key;
  }

  add(order: string, entry: TraceEntry): void {
    const payment = this.#payments.get(order);
    if (payment === undefined) return;
    payment.add(entry);
    this.#tell({ kind: "payment", payment: payment.summary(), entry });
    if (entry.kind === "request-sent") this.#forgetOldest();
  }

  /** The process of the API has changed, which concerns whatever is under way. */
  tellProcess(process: ProcessState, entry: TraceEntry): void {
    this.#tell({ kind: "process", process });
    for (const { order, isConcerned } of this.#payments.values()) if (isConcerned) this.add(order, entry);
  }

  /** The requests that the API's own code was at work on when its process died. */
  endHandlers(at: number): void {
    for (const { order, openHandlers } of this.#payments.values()) {
      for (const request of [...openHandlers]) {
        this.add(order, { at, kind: "handler-ended", request, how: "killed" });
      }
    }
  }

  views(): PaymentView[] {
    return [...this.#payments.values()].map((payment) => payment.view());
  }

  clear(): void {
    this.#payments.clear();
    this.#tell({ kind: "reset" });
  }

  subscribe(listener: (change: PlaygroundChange) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #tell(change: PlaygroundChange): void {
    for (const listener of this.#listeners) listener(change);
  }

  #forgetOldest(): void {
    const payments = [...this.#payments.values()];
    // Payments that nobody ever sent a request for count as one, or they would never go.
    let requests = payments.reduce((sum, payment) => sum + Math.max(1, payment.requests), 0);
    for (const payment of payments.slice(0, -1)) {
      if (requests <= requestsMax) return;
      this.#payments.delete(payment.order);
      requests -= Math.max(1, payment.requests);
    }
  }
}

class Payment {
  readonly order: string;
  readonly faults: Faults;
  readonly #about: Pick<PaymentSummary, "scenario" | "isProtected" | "amount">;
  readonly #startedAt = Date.now();
  #entries: TraceEntry[] = [];
  #charges = 0;
  #charged = 0;
  #openRequests = 0;
  #hasLostProcess = false;
  readonly openHandlers = new Set<number>();
  key: string | null = null;
  requests = 0;

  constructor(order: string, about: Pick<PaymentSummary, "scenario" | "isProtected" | "amount">) {
    this.order = order;
    this.#about = about;
    this.faults = faultsOf(about.scenario);
  }

  /** Whether what becomes of the API's process has to do with this payment. */
  get isConcerned(): boolean {
    return this.#openRequests > 0 || this.openHandlers.size > 0 || this.#hasLostProcess;
  }

  add(entry: TraceEntry): void {
    switch (entry.kind) {
      case "request-sent":
        this.requests += 1;
        this.#openRequests += 1;
        break;
      case "request-ended":
        this.#openRequests -= 1;
        break;
      case "handler-begun":
        this.openHandlers.add(entry.request);
        break;
      case "handler-ended":
        // Whoever was killed may have said its last word before, and been heard after.
        if (!this.openHandlers.delete(entry.request)) return;
        break;
      case "charged":
        this.#charges += 1;
        this.#charged += entry.amount;
        break;
      case "call-begun":
      case "call-ended":
      case "provider-asked":
      case "latchkey":
        break;
      case "process":
        this.#hasLostProcess = entry.what !== "started";
        break;
      default:
        entry satisfies never;
    }
    this.#entries.push(entry);
    if (this.#entries.length > entriesMax) this.#entries = this.#entries.slice(-entriesMax / 2);
  }

  summary(): PaymentSummary {
    return {
      order: this.order,
      ...this.#about,
      startedAt: this.#startedAt,
      key: this.key,
      requests: this.requests,
      charges: this.#charges,
      charged: this.#charged,
    };
  }

  view(): PaymentView {
    return { ...this.summary(), entries: this.#entries };
  }
}
