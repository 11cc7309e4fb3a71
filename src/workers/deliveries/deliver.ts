import { LatchkeyError } from "../../core/errors.ts";

/** A message of the outbox as a delivery sees it. */
export interface DeliveredMessage {
  readonly id: string;
  readonly topic: string;
  readonly payload: unknown;
  /** The same for every delivery of this message: what its consumer deduplicates on. */
  readonly key: string;
  /** What ties the message to the request that caused it. */
  readonly correlationId: string;
  /** Messages of one partition come one after the other; null if the order does not matter. */
  readonly partition: string | null;
  /** The W3C trace context that the receiver goes on with; null if the message is not traced. */
  readonly traceparent: string | null;
  /** 1 for the first. */
  readonly attempt: number;
  /** Milliseconds since 1970, on the store's clock. */
  readonly createdAt: number;
}

export interface DeliveryContext {
  /** Fires when the delivery has taken too long. It counts as failed from then on, whether it stops or not. */
  readonly signal: AbortSignal;
}

/** What the receiver called the message, to be kept beside it. */
export interface DeliveryReceipt {
  readonly reference?: string | undefined;
}

/** Hands one message to its receiver, and resolves once the receiver has it for good. A throw means: try again later. */
export type Deliver = (
  message: DeliveredMessage,
  context: DeliveryContext,
  // biome-ignore lint/suspicious/noConfusingVoidType: a handler that returns nothing is typed like this by its author.
) => Promise<DeliveryReceipt | void>;

/** Thrown by a delivery that no attempt could ever make: the message goes to the dead letters at once. */
export class NotDeliverableError extends LatchkeyError {
  constructor(message: string, options?: ErrorOptions) {
    super("not-deliverable", message, options);
  }
}

/** Thrown by a delivery whose receiver has said when it wants to be asked again. */
export class RetryLaterError extends LatchkeyError {
  readonly retryAfterMs: number;

  constructor(message: string, options: ErrorOptions & { readonly retryAfterMs: number }) {
    super("retry-later", message, options);
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** What every delivery tells its receiver in headers: what to deduplicate on, what caused the message, and its trace. */
export function deliveryHeadersOf(message: DeliveredMessage): Record<string, string> {
  const { key, correlationId, traceparent } = message;
  const headers = { "idempotency-key": key, "correlation-id": correlationId };
  return traceparent ? { ...headers, traceparent } : headers;
}
