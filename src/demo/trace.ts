import type { ScenarioId } from "./scenarios.ts";

/** One thing that happened to a payment, told by the process in which it did. Times are this machine's, in ms since 1970. */
export type TraceEntry = { readonly at: number } & (
  | {
      readonly kind: "request-sent";
      readonly request: number;
      readonly amount: number;
      /** Which press of the button it belongs to, and which try of that press; as the client says. */
      readonly tap: number;
      readonly attempt: number;
    }
  | { readonly kind: "request-ended"; readonly request: number; readonly end: RequestEnd }
  /** The payments API's own code begins to work on a request, and ends. */
  | { readonly kind: "handler-begun"; readonly request: number; readonly pid: number }
  | {
      readonly kind: "handler-ended";
      readonly request: number;
      readonly how: "answered" | "failed" | "killed";
    }
  | { readonly kind: "call-begun"; readonly call: number; readonly amount: number }
  | { readonly kind: "charged"; readonly call: number; readonly charge: string; readonly amount: number }
  | { readonly kind: "call-ended"; readonly call: number; readonly how: "answered" | "refused" | "unheard" }
  /** The reconciler asked the provider what became of a call. */
  | { readonly kind: "provider-asked"; readonly found: "charged" | "processing" | "nothing" }
  /** What Latchkey says about the payment's key. */
  | {
      readonly kind: "latchkey";
      readonly type: string;
      readonly outcome: string | null;
      readonly detail: string | null;
    }
  | { readonly kind: "process"; readonly pid: number; readonly what: "killed" | "ended" | "started" }
);

/** How a request ended, as the network between client and API saw it. */
export type RequestEnd =
  | {
      readonly kind: "answered";
      readonly status: number;
      readonly isReplay: boolean;
      /** The `code` of a problem document. */
      readonly code: string | null;
    }
  /** The API answered, and the answer did not arrive. */
  | { readonly kind: "lost"; readonly status: number }
  /** The API's process died, or was not there. */
  | { readonly kind: "broken" }
  /** The client did not wait any longer. */
  | { readonly kind: "given-up" };

/** A payment in a list. */
export interface PaymentSummary {
  readonly order: string;
  readonly scenario: ScenarioId;
  readonly isProtected: boolean;
  readonly amount: number;
  readonly startedAt: number;
  /** The Idempotency-Key of its requests; null before the first. */
  readonly key: string | null;
  readonly requests: number;
  readonly charges: number;
  readonly charged: number;
}

export interface PaymentView extends PaymentSummary {
  /** The latest, where there were too many. */
  readonly entries: readonly TraceEntry[];
}

/** What the page is told when it connects, as the event `playground`. */
export interface PlaygroundView {
  /** The latest payment last. */
  readonly payments: readonly PaymentView[];
  readonly process: ProcessState;
  /** With which the console is opened, as the demo's operator. */
  readonly operatorToken: string;
  /** The scope of every record of the demo. */
  readonly scope: string;
}

/** The process of the payments API; null while there is none. */
export interface ProcessState {
  readonly pid: number | null;
  readonly restarts: number;
}

/** What the page is told afterwards, as the event `change`. */
export type PlaygroundChange =
  | { readonly kind: "payment"; readonly payment: PaymentSummary; readonly entry: TraceEntry | null }
  | { readonly kind: "process"; readonly process: ProcessState }
  | { readonly kind: "reset" };
