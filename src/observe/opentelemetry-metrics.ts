import type { BatchObservableResult, Histogram, Meter, MetricOptions, Observable } from "@opentelemetry/api";
import type { Latchkey } from "../latchkey.ts";
import { type Instrument, instruments } from "./instruments.ts";
import { type DurationName, Meters } from "./meters.ts";
import type { MetricsOptions } from "./options.ts";

/**
 * Shows everything that is measured to OpenTelemetry. Counters are read when they are exported, so a request pays
 * nothing for them; only durations have to be recorded one by one.
 */
export function observeMetrics(latchkey: Latchkey, meter: Meter, options: MetricsOptions): () => void {
  const histograms = new Map<string, Histogram>();
  const observables = new Map<string, Observable>();
  for (const instrument of instruments.values()) {
    if (instrument.kind === "histogram") histograms.set(instrument.name, histogramOf(meter, instrument));
    else observables.set(instrument.name, observableOf(meter, instrument));
  }
  const meters = new Meters(latchkey, options, (name: DurationName, seconds) =>
    histograms.get(name)?.record(seconds),
  );
  const observe = async (result: BatchObservableResult): Promise<void> => {
    for (const reading of await meters.read()) {
      const { instrument } = reading;
      const observable = observables.get(instrument.name);
      if (observable === undefined || !("samples" in reading)) continue;
      for (const { label, value } of reading.samples) {
        result.observe(observable, value, instrument.label && { [instrument.label.name]: label ?? "" });
      }
    }
  };
  const all = [...observables.values()];
  meter.addBatchObservableCallback(observe, all);
  return () => {
    meter.removeBatchObservableCallback(observe, all);
    meters.close();
  };
}

function observableOf(meter: Meter, instrument: Instrument): Observable {
  const options: MetricOptions = { description: instrument.help, unit: instrument.unit };
  return instrument.kind === "counter"
    ? meter.createObservableCounter(instrument.name, options)
    : meter.createObservableGauge(instrument.name, options);
}

function histogramOf(meter: Meter, { name, help, unit, bounds = [] }: Instrument): Histogram {
  return meter.createHistogram(name, {
    description: help,
    unit,
    advice: { explicitBucketBoundaries: [...bounds] },
  });
}
