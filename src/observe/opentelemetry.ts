import {
  type MeterProvider,
  metrics,
  type ProxyTracerProvider,
  type TracerProvider,
  trace,
} from "@opentelemetry/api";
import type { Latchkey } from "../latchkey.ts";
import { observeMetrics } from "./opentelemetry-metrics.ts";
import { drawTraces, type TracerInUse } from "./opentelemetry-tracing.ts";
import { type MetricsOptions, resolveMetricsOptions } from "./options.ts";

export type { MetricsOptions } from "./options.ts";

export interface InstrumentOptions extends MetricsOptions {
  /** Where metrics go; the global one if left out, false for none. */
  readonly meterProvider?: MeterProvider | false;
  /** Where spans go; the global one if left out, false for none. */
  readonly tracerProvider?: TracerProvider | false;
}

/**
 * Shows what a Latchkey does to OpenTelemetry, from now on. Answers with how to stop it.
 *
 * @example
 * ```ts
 * const stop = instrument(latchkey);
 * ```
 */
export function instrument<Tx>(latchkey: Latchkey<Tx>, options: InstrumentOptions = {}): () => void {
  const { meterProvider = metrics, tracerProvider = trace, ...metricsOptions } = options;
  const observed = latchkey as Latchkey;
  resolveMetricsOptions(metricsOptions);
  const stopTraces = tracerProvider && drawTraces(observed, tracerOf(tracerProvider));
  const stopMetrics =
    meterProvider && observeMetrics(observed, meterProvider.getMeter(scopeName), metricsOptions);
  return () => {
    if (stopTraces) stopTraces();
    if (stopMetrics) stopMetrics();
  };
}

/** The tracer, and whether somebody has an SDK that takes its spans: one may come while requests are served. */
function tracerOf(given: TracerProvider): TracerInUse {
  const provider: TracerProvider & Partial<Pick<ProxyTracerProvider, "getDelegateTracer">> =
    given === trace ? trace.getTracerProvider() : given;
  let isHeard = provider.getDelegateTracer === undefined;
  return {
    tracer: provider.getTracer(scopeName),
    isHeard() {
      isHeard ||= provider.getDelegateTracer?.(scopeName) !== undefined;
      return isHeard;
    },
  };
}

/** What telemetry names as its source. */
const scopeName = "latchkey";
