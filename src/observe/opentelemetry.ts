import { type MeterProvider, metrics } from "@opentelemetry/api";
import type { Latchkey } from "../latchkey.ts";
import { observeMetrics } from "./opentelemetry-metrics.ts";
import type { MetricsOptions } from "./options.ts";

export type { MetricsOptions } from "./options.ts";

export interface InstrumentOptions extends MetricsOptions {
  /** Where metrics go; the global one if left out, false for none. */
  readonly meterProvider?: MeterProvider | false;
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
  const { meterProvider = metrics, ...metricsOptions } = options;
  const observed = latchkey as Latchkey;
  const stopMetrics =
    meterProvider === false
      ? undefined
      : observeMetrics(observed, meterProvider.getMeter(scopeName), metricsOptions);
  return () => stopMetrics?.();
}

/** What telemetry names as its source. */
const scopeName = "latchkey";
