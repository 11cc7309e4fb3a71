import {
  type Context,
  context,
  ROOT_CONTEXT,
  type SpanContext,
  SpanKind,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { ConfigError } from "../core/errors.ts";
import type { Message } from "../core/outbox.ts";
import { digestOf } from "../core/pseudonym.ts";
import { recordIdText } from "../core/record.ts";
import { traceHeader } from "../core/stored-request.ts";
import { parseTraceparent, traceparentText } from "../core/traceparent.ts";
import type { Execution } from "../engine/execution.ts";
import type { ArrivalTrace, Tracing } from "../engine/tracing.ts";
import { type Arrival, outcomeOf, type Verdict } from "../engine/verdict.ts";
import type { Latchkey } from "../latchkey.ts";
import { ExecutionSpans } from "./execution-spans.ts";
import { activeSpanContext, isUnrecorded, recordedTraceparent, Segment } from "./segment.ts";

export interface TracerInUse {
  readonly tracer: Tracer;
  /** False as long as there is no SDK, so that the spans would be nobody's. */
  isHeard(): boolean;
}

/** Draws spans of everything that a Latchkey does from now on; answers with how to stop it. */
export function drawTraces(latchkey: Latchkey, tracer: TracerInUse): () => void {
  const { engine } = latchkey;
  if (engine.tracing !== undefined) {
    throw new ConfigError(
      "this Latchkey is traced already: call instrument once, or stop the first one before",
    );
  }
  const tracing = new OpenTelemetryTracing(tracer);
  engine.tracing = tracing;
  return () => {
    if (engine.tracing === tracing) engine.tracing = undefined;
  };
}

class OpenTelemetryTracing implements Tracing {
  readonly tracer: Tracer;
  readonly #isHeard: TracerInUse["isHeard"];
  /** The attempts of this process that left no answer, for those that come after them to point to. */
  readonly failedAttempts = new Remembered<SpanContext>();
  readonly #digests = new Remembered<string>();

  constructor({ tracer, isHeard }: TracerInUse) {
    this.tracer = tracer;
    this.#isHeard = isHeard;
  }

  current(): string | undefined {
    return recordedTraceparent(activeSpanContext());
  }

  arrive(
    arrival: Arrival,
    answer: (traced: Arrival) => Verdict | Promise<Verdict>,
  ): Verdict | Promise<Verdict> {
    // Most traces are not recorded in production. Spans that nobody will see would cost several times what they measure.
    if (!this.#isHeard() || isUnrecorded(activeSpanContext())) return answer(arrival);
    const traced = new ArrivalSpan(this, arrival);
    // A provider of somebody's own that draws nothing.
    if (!trace.isSpanContextValid(traced.segment.spanContext)) return answer(arrival);
    return traced.segment.run(() => answer({ ...arrival, trace: traced }));
  }

  async deliver<T>(message: Message, deliver: (traceparent: string | null) => Promise<T>): Promise<T> {
    const cause = parseTraceparent(message.traceparent);
    const parent =
      cause === undefined ? ROOT_CONTEXT : trace.setSpanContext(ROOT_CONTEXT, { ...cause, isRemote: true });
    const segment = new Segment(this.tracer, "idempotency.deliver", {
      parent,
      kind: SpanKind.PRODUCER,
      attributes: {
        "messaging.destination.name": message.topic,
        "idempotency.attempt": message.attempts + 1,
      },
    });
    const { spanContext } = segment;
    const traceparent = trace.isSpanContextValid(spanContext)
      ? traceparentText(spanContext)
      : message.traceparent;
    try {
      return await segment.run(() => deliver(traceparent));
    } catch (error) {
      segment.fail("the delivery failed");
      throw error;
    } finally {
      segment.end();
    }
  }

  /** The requests of one tenant mostly come together. */
  digest(scope: string): string {
    const known = this.#digests.get(scope);
    if (known !== undefined) return known;
    const digest = digestOf(scope);
    this.#digests.set(scope, digest);
    return digest;
  }
}

class ArrivalSpan implements ArrivalTrace {
  readonly segment: Segment;
  readonly #tracing: OpenTelemetryTracing;
  readonly #arrival: Arrival;
  readonly #parent: Context;
  #first: ArrivalSpan | undefined;
  #execution: ExecutionSpans | undefined;

  constructor(tracing: OpenTelemetryTracing, arrival: Arrival) {
    this.#tracing = tracing;
    this.#arrival = arrival;
    this.#parent = context.active();
    this.segment = new Segment(tracing.tracer, "idempotency.reserve", {
      parent: this.#parent,
      attributes: {
        "idempotency.scope_digest": tracing.digest(arrival.scope),
        ...(arrival.route === undefined ? {} : { "idempotency.route": arrival.route }),
      },
    });
  }

  joined(first: ArrivalTrace | undefined): void {
    if (first instanceof ArrivalSpan) this.#first = first;
  }

  answered(verdict: Verdict, from: "store" | "flight" | "cache"): void {
    const { segment } = this;
    segment.set({ "idempotency.outcome": outcomeOf(verdict), "idempotency.answered_from": from });
    if (from === "flight") segment.link(this.#first?.pointedTo);
    else if (verdict.kind === "replay") segment.link(spanContextOf(verdict.response.trace));
    if (verdict.kind === "execute") this.#executes(verdict.execution);
    if (verdict.kind === "storeDown") segment.fail("the store did not answer");
    segment.end();
  }

  /** What a duplicate has to do with: the execution if it has begun. */
  get pointedTo(): SpanContext {
    return this.#execution?.spanContext ?? this.segment.spanContext;
  }

  #executes(execution: Execution): void {
    const { attempt, lease } = execution;
    const { tracer, failedAttempts } = this.#tracing;
    const { route, request, isClaim } = this.#arrival;
    const id = recordIdText(lease);
    this.segment.set({ "idempotency.attempt": attempt });
    const kept = isClaim ? request?.headers.find(([name]) => name === traceHeader)?.[1] : undefined;
    this.#execution = new ExecutionSpans({
      tracer,
      parent: this.#parent,
      links: [spanContextOf(kept), attempt > 1 ? failedAttempts.get(id) : undefined],
      attributes: {
        "idempotency.attempt": attempt,
        "idempotency.scope_digest": this.#tracing.digest(lease.scope),
        ...(route === undefined ? {} : { "idempotency.route": route }),
      },
      ended: (spanContext, hasAnswer) => {
        if (hasAnswer) failedAttempts.delete(id);
        else failedAttempts.set(id, spanContext);
      },
    });
    execution.trace = this.#execution;
  }
}

function spanContextOf(text: string | undefined): SpanContext | undefined {
  const parent = parseTraceparent(text);
  return parent && { ...parent, isRemote: true };
}

const rememberedMax = 1_000;

/** The latest of what was noted, and no more than that. */
class Remembered<Value> {
  readonly #values = new Map<string, Value>();

  get(name: string): Value | undefined {
    return this.#values.get(name);
  }

  set(name: string, value: Value): void {
    this.#values.delete(name);
    this.#values.set(name, value);
    if (this.#values.size <= rememberedMax) return;
    for (const oldest of this.#values.keys()) {
      this.#values.delete(oldest);
      return;
    }
  }

  delete(name: string): void {
    this.#values.delete(name);
  }
}
