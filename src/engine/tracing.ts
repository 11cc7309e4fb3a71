import type { Message } from "../core/outbox.ts";
import type { Phase } from "../core/phase.ts";
import type { Settlement } from "../core/store.ts";
import type { LatchkeyEvent } from "./events.ts";
import type { Settled } from "./outcome.ts";
import type { Arrival, Verdict } from "./verdict.ts";

/**
 * Whoever draws a trace of what the engine does. The engine has none unless one is set, and then pays for a look at an
 * empty field. Nothing of it may throw or wait: a trace is no reason to fail a payment.
 */
export interface Tracing {
  /** The W3C trace context (`traceparent`) of the code that asks; undefined if it is not recorded. */
  current(): string | undefined;

  /** Answers an arriving request; the arrival that `answer` is given carries the trace. */
  arrive(
    arrival: Arrival,
    answer: (traced: Arrival) => Verdict | Promise<Verdict>,
  ): Verdict | Promise<Verdict>;

  /** Delivers a message; `deliver` is given the trace context for its receiver. */
  deliver<T>(message: Message, deliver: (traceparent: string | null) => Promise<T>): Promise<T>;
}

/** The trace of one arriving request. */
export interface ArrivalTrace {
  /** It is a duplicate of one that is under way here; `first` is that one's trace, if it has one. */
  joined(first: ArrivalTrace | undefined): void;

  /** This is its answer. Where it is the right to execute, the trace goes on with the execution. */
  answered(verdict: Verdict, from: "store" | "flight" | "cache"): void;
}

/** The trace of one execution, from its handler's first line until its outcome is settled. */
export interface ExecutionTrace {
  /** What is kept with the answer, for the traces of its replays to point to; undefined if it is not recorded. */
  readonly traceparent: string | undefined;

  /** The W3C trace context of the code that asks, within the handler; undefined if it is not recorded. */
  current(): string | undefined;

  /** Runs the handler, so that what it traces itself is found below. */
  run<T>(handler: () => T): T;

  phase<T>(kind: Phase["kind"], name: string, run: () => Promise<T>): Promise<T>;

  /** What became of the phase that is being run. */
  phaseEnded(outcome: Extract<LatchkeyEvent, { type: "phase" }>["outcome"]): void;

  /** The outcome is being told to the store. */
  settle(settlement: Settlement, tell: () => Promise<Settled>): Promise<Settled>;

  /** Called once for each time that the execution seemed to have ended; the store may have to be told again. */
  ended(settled: Settled): void;
}
