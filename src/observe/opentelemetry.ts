import { type MeterProvider, metrics, type TracerProvider, trace } from "@opentelemetry/api";
import type { Latchkey } from "../latchkey.ts";
import { observeMetrics } from "./opentelemetry-metrics.ts";
import { drawTraces } from "./opentelemetry-tracing.ts";
import type { MetricsOptions } from "./options.ts";

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
  const stopTraces = tracerProvider && drawTraces(observed, tracerProvider.getTracer(scopeName));
  const stopMetrics =
    meterProvider && observeMetrics(observed, meterProvider.getMeter(scopeName), metricsOptions);
  return () => {
    if (stopTraces) stopTraces();
    if (stopMetrics) stopMetrics();
  };
}

/** What telemetry names as its source. */
const scopeName = "latchkey";
