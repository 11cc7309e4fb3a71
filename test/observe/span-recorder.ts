import { context, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  type Sampler,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";

/** OpenTelemetry as an application sets it up, with an exporter that can be looked into. */
export interface SpanRecorder {
  readonly provider: BasicTracerProvider;
  /** Those that have ended, in that order. */
  spans(name?: string): readonly ReadableSpan[];
  /** The only one of its name. */
  span(name: string): ReadableSpan;
  /** Runs `work` within a span of this name, as a server's own instrumentation would. */
  within<T>(name: string, work: () => Promise<T>): Promise<T>;
  reset(): void;
}

export function recordSpans(sampler?: Sampler): SpanRecorder {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const exporter = new InMemorySpanExporter();
  const provider = new BasicTracerProvider({
    spanProcessors: [new SimpleSpanProcessor(exporter)],
    ...(sampler === undefined ? {} : { sampler }),
  });
  const tracer = provider.getTracer("application");
  const spans = (name?: string) =>
    exporter.getFinishedSpans().filter((span) => name === undefined || span.name === name);
  return {
    provider,
    spans,
    span(name) {
      const [found, ...more] = spans(name);
      if (found === undefined || more.length > 0)
        throw new Error(`${more.length + (found ? 1 : 0)} × ${name}`);
      return found;
    },
    within(name, work) {
      return tracer.startActiveSpan(name, async (span) => {
        try {
          return await work();
        } finally {
          span.end();
        }
      });
    },
    reset: () => exporter.reset(),
  };
}

export const idOf = (span: ReadableSpan) => span.spanContext().spanId;
export const parentOf = (span: ReadableSpan) => span.parentSpanContext?.spanId;
export const linksOf = (span: ReadableSpan) => span.links.map((link) => link.context.spanId);

export function traceparentOf(span: ReadableSpan): string {
  const { traceId, spanId } = span.spanContext();
  return `00-${traceId}-${spanId}-01`;
}

export function activeSpanId(): string | undefined {
  return trace.getActiveSpan()?.spanContext().spanId;
}
