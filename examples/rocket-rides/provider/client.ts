import type { LedgerCharge } from "./ledger.ts";

export interface ChargeOrder {
  readonly amount: number;
  readonly currency: string;
  /** Our own name for what is paid for, by which the charge can be found again. */
  readonly reference: string;
}

/** What a ride has to know about its charge. A card that was declined is an answer, not an error. */
export type Charge = Pick<LedgerCharge, "id" | "status">;

/** The provider as the service sees it. */
export interface Provider {
  charge(
    order: ChargeOrder,
    options: { readonly idempotencyKey: string; readonly signal: AbortSignal },
  ): Promise<Charge>;
  /** The charge for a reference; undefined if the provider has none. */
  find(reference: string, options: { readonly signal: AbortSignal }): Promise<Charge | undefined>;
}

const timeoutMsDefault = 10_000; // Shorter than a caller waits for its ride.

export function httpProvider(baseUrl: string, options: { readonly timeoutMs?: number } = {}): Provider {
  const { timeoutMs = timeoutMsDefault } = options;
  const within = (signal: AbortSignal) => AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
  return {
    async charge(order, { idempotencyKey, signal }) {
      const response = await fetch(`${baseUrl}/charges`, {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": idempotencyKey },
        body: JSON.stringify(order),
        signal: within(signal),
      });
      if (response.status !== 201 && response.status !== 402) throw unexpected(response);
      return chargeOf((await response.json()) as LedgerCharge);
    },
    async find(reference, { signal }) {
      const response = await fetch(`${baseUrl}/charges?reference=${encodeURIComponent(reference)}`, {
        signal: within(signal),
      });
      if (response.status !== 200) throw unexpected(response);
      const [found] = (await response.json()) as LedgerCharge[];
      return found && chargeOf(found);
    },
  };
}

/** Nothing can have happened if nobody was there to hear it. Every other failure leaves that open. */
export function wasNeverSent(error: unknown): boolean {
  const { cause } = Object(error) as { cause?: unknown };
  return (Object(cause) as { code?: unknown }).code === "ECONNREFUSED";
}

function chargeOf({ id, status }: LedgerCharge): Charge {
  return { id, status };
}

function unexpected(response: Response): Error {
  return new Error(`the payment provider answered ${response.status}`);
}
