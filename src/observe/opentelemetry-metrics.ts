import {
  type BatchObservableResult,
  createNoopMeter,
  type Histogram,
  type Meter,
  type MetricOptions,
  type Observable,
} from "@opentelemetry/api";
import type { Latchkey } from "../latchkey.ts";
import { type Instrument, type InstrumentName, instruments } from "./instruments.ts";
import { durationNames, Meters } from "./meters.ts";
import type { MetricsOptions } from "./options.ts";

/**
 * Shows everything that is measured to OpenTelemetry. Counters are read when they are exported, so a request pays
 * nothing for them; only durations have to be recorded one by one.
 */
export function observeMetrics(latchkey: Latchkey, meter: Meter, options: MetricsOptions): () => void {
  // There was no SDK when the meter was made, and unlike a tracer it never finds one later: nobody will look.
  if (meter === createNoopMeter()) return () => {};
  const observables = new Map<string, Observable>();
  for (const instrument of instruments.values()) {
    if (instrument.kind !== "histogram") observables.set(instrument.name, observableOf(meter, instrument));
  }
  const meters = new Meters(latchkey, options, {
    wait: histogramOf(meter, durationNames.wait),
    execute: histogramOf(meter, durationNames.execute),
  });
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

function histogramOf(meter: Meter, name: InstrumentName): Histogram {
  const { help, unit, bounds = [] } = instruments.get(name) as Instrument;
  return meter.createHistogram(name, {
    description: help,
    unit,
    advice: { explicitBucketBoundaries: [...bounds] },
  });
}
