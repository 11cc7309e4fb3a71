import {
  type Attributes,
  type Context,
  context,
  INVALID_SPAN_CONTEXT,
  isSpanContextValid,
  type Link,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { traceparentText } from "../core/traceparent.ts";

export interface SegmentOptions {
  readonly parent: Context;
  readonly kind?: SpanKind;
  readonly links?: readonly (SpanContext | undefined)[];
  readonly attributes?: Attributes;
}

/**
 * A span that harms nobody. Samplers and exporters are other people's code, and one that throws must not become the
 * failure of a payment.
 */
export class Segment {
  readonly #span: Span;
  /** In which whatever happens belongs to this. */
  readonly context: Context;
  #hasEnded = false;

  constructor(tracer: Tracer, name: string, options: SegmentOptions) {
    const { parent, kind = SpanKind.INTERNAL, links = [], attributes = {} } = options;
    this.#span =
      tried(() => tracer.startSpan(name, { kind, attributes, links: links.flatMap(linkTo) }, parent)) ??
      trace.wrapSpanContext(INVALID_SPAN_CONTEXT);
    this.context = trace.setSpan(parent, this.#span);
  }

  get spanContext(): SpanContext {
    return tried(() => this.#span.spanContext()) ?? INVALID_SPAN_CONTEXT;
  }

  run<T>(work: () => T): T {
    return context.with(this.context, work);
  }

  set(attributes: Attributes): void {
    tried(() => this.#span.setAttributes(attributes));
  }

  link(to: SpanContext | undefined): void {
    // Implementations that are older than the method simply show no such link.
    if (to !== undefined && typeof this.#span.addLink === "function") {
      tried(() => this.#span.addLink({ context: to }));
    }
  }

  /** Says what kind of failure it was, and not what the error says, which may be anybody's data. */
  fail(what: string): void {
    tried(() => this.#span.setStatus({ code: SpanStatusCode.ERROR, message: what }));
  }

  end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    tried(() => this.#span.end());
  }
}

/** Of the span that the caller runs in, which is other people's code as well. */
export function activeSpanContext(): SpanContext | undefined {
  return tried(spanContextAround);
}

function spanContextAround(): SpanContext | undefined {
  return trace.getSpanContext(context.active());
}

/** The `traceparent` of a span that is recorded; others are not worth pointing to. */
export function recordedTraceparent(spanContext: SpanContext | undefined): string | undefined {
  if (spanContext === undefined || !isSpanContextValid(spanContext)) return undefined;
  return spanContext.traceFlags & TraceFlags.SAMPLED ? traceparentText(spanContext) : undefined;
}

/** Whether whoever began the trace has decided that it is not recorded. */
export function isUnrecorded(spanContext: SpanContext | undefined): boolean {
  if (spanContext === undefined || !isSpanContextValid(spanContext)) return false;
  return (spanContext.traceFlags & TraceFlags.SAMPLED) === 0;
}

function linkTo(to: SpanContext | undefined): Link[] {
  return to === undefined ? [] : [{ context: to }];
}

function tried<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    process.emitWarning(error instanceof Error ? error : String(error));
    return undefined;
  }
}
