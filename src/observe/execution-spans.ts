import { type Attributes, type Context, context, type SpanContext, type Tracer } from "@opentelemetry/api";
import type { Phase } from "../core/phase.ts";
import type { Settlement } from "../core/store.ts";
import type { Settled } from "../engine/outcome.ts";
import type { ExecutionTrace } from "../engine/tracing.ts";
import { activeSpanContext, recordedTraceparent, Segment } from "./segment.ts";

export interface ExecutionSpansOptions {
  readonly tracer: Tracer;
  /** Where the request came in. */
  readonly parent: Context;
  readonly links: readonly (SpanContext | undefined)[];
  readonly attributes: Attributes;
  /** Called once, with whether there is an answer now. */
  ended(spanContext: SpanContext, hasAnswer: boolean): void;
}

/** The spans of one execution: the handler's, with those of its phases and of its settlement below it. */
export class ExecutionSpans implements ExecutionTrace {
  readonly #options: ExecutionSpansOptions;
  /** Begins with the handler; one that never ran has none. */
  #whole: Segment | undefined;
  #phase: Segment | undefined;

  constructor(options: ExecutionSpansOptions) {
    this.#options = options;
  }

  get spanContext(): SpanContext | undefined {
    return this.#whole?.spanContext;
  }

  get traceparent(): string | undefined {
    return recordedTraceparent(this.spanContext);
  }

  current(): string | undefined {
    return recordedTraceparent(activeSpanContext());
  }

  run<T>(handler: () => T): T {
    const { tracer, parent, links, attributes } = this.#options;
    this.#whole = new Segment(tracer, "idempotency.execute", { parent, links, attributes });
    return this.#whole.run(handler);
  }

  async phase<T>(kind: Phase["kind"], name: string, run: () => Promise<T>): Promise<T> {
    const segment = new Segment(this.#options.tracer, `idempotency.phase ${name}`, {
      parent: context.active(),
      attributes: { "idempotency.phase.kind": kind },
    });
    this.#phase = segment;
    try {
      return await segment.run(run);
    } catch (error) {
      segment.set({ "idempotency.phase.outcome": "failed" });
      segment.fail("the phase failed");
      throw error;
    } finally {
      this.#phase = undefined;
      segment.end();
    }
  }

  phaseEnded(outcome: "done" | "skipped" | "failed"): void {
    this.#phase?.set({ "idempotency.phase.outcome": outcome });
  }

  settle(settlement: Settlement, tell: () => Promise<Settled>): Promise<Settled> {
    const segment = new Segment(this.#options.tracer, "idempotency.settle", {
      parent: this.#whole?.context ?? this.#options.parent,
      attributes: { "idempotency.settlement": settlement.kind },
    });
    const told = segment.run(tell);
    told.then(
      (settled) => {
        if (settled.kind === "storeDown") segment.fail("the store did not confirm the outcome");
        if (settled.kind === "lost") segment.fail("another owner has the key");
        segment.end();
      },
      () => segment.end(),
    );
    return told;
  }

  ended(settled: Settled): void {
    const whole = this.#whole;
    if (whole === undefined) return;
    whole.set({ "idempotency.settled": settled.kind });
    const failure = failures[settled.kind];
    if (failure !== undefined) whole.fail(failure);
    whole.end();
    this.#options.ended(whole.spanContext, settled.kind === "stored");
  }
}

/** What of an execution is an error to whoever looks at its trace. A request that may be tried again need not be one. */
const failures: Record<Settled["kind"], string | undefined> = {
  stored: undefined,
  released: undefined,
  suspended: "nobody knows the outcome",
  lost: "another owner has the key",
  timedOut: "the handler took too long",
  storeDown: "the store did not confirm the outcome",
};
