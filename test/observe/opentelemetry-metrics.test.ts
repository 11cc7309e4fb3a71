import {
  AggregationTemporality,
  DataPointType,
  InMemoryMetricExporter,
  MeterProvider,
  type MetricData,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { describe, expect, it } from "vitest";
import { createLatchkey } from "../../src/index.ts";
import { instruments } from "../../src/observe/instruments.ts";
import { instrument } from "../../src/observe/opentelemetry.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";

function exported() {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  const meterProvider = new MeterProvider({ readers: [reader] });
  const store = Object.assign(memoryStore(), {
    outbox: { counts: async () => ({ waiting: 3, dead: 1, oldestDueMs: 2500 }) },
  });
  const latchkey = createLatchkey({ store: store as never, tenant: "single" });
  const stop = instrument(latchkey, { meterProvider, tracerProvider: false });
  return {
    latchkey,
    stop,
    async collect(): Promise<Map<string, MetricData>> {
      exporter.reset();
      await reader.forceFlush();
      const metrics = exporter.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics);
      return new Map(metrics.flatMap((scope) => scope.metrics).map((data) => [data.descriptor.name, data]));
    },
  };
}

const values = (data: MetricData | undefined) =>
  Object.fromEntries(
    (data?.dataPoints ?? []).map(({ attributes, value }) => [
      Object.entries(attributes).join() || "all",
      value,
    ]),
  );

const run = (latchkey: ReturnType<typeof exported>["latchkey"], key: string, input: unknown = {}) =>
  latchkey.run({ tenant: "acme", key, input }, () => "done").catch(() => {});

describe("OpenTelemetry metrics", () => {
  it("are every instrument of the table, with its kind, its unit and its description", async () => {
    const { latchkey, collect } = exported();
    await run(latchkey, "a");
    await run(latchkey, "a");
    latchkey.engine.events.emit({ type: "waited", scope: "acme", key: "a", ms: 30, answered: true });
    const metrics = await collect();
    expect([...metrics.keys()].sort()).toEqual([...instruments.keys()].sort());
    for (const { name, kind, unit, help, bounds } of instruments.values()) {
      const data = metrics.get(name) as MetricData;
      expect(data.descriptor).toMatchObject({ unit, description: help });
      expect(data.dataPointType).toBe(
        { counter: DataPointType.SUM, gauge: DataPointType.GAUGE, histogram: DataPointType.HISTOGRAM }[kind],
      );
      if (data.dataPointType === DataPointType.SUM) expect(data.isMonotonic).toBe(true);
      if (data.dataPointType === DataPointType.HISTOGRAM) {
        expect(data.dataPoints[0]?.value.buckets.boundaries).toEqual(bounds);
      }
    }
  });

  it("count what happened", async () => {
    const { latchkey, collect } = exported();
    await run(latchkey, "a");
    await run(latchkey, "a");
    await run(latchkey, "a", { other: true });
    latchkey.engine.events.emit({ type: "store_error", verb: "renew", error: new Error("no") });
    const metrics = await collect();
    const shown = (name: string) => values(metrics.get(`api.idempotency.${name}`));
    expect(shown("reserve.created.count")).toEqual({ all: 1 });
    expect(shown("reserve.replay.count")).toEqual({ all: 1 });
    expect(shown("reserve.key_misuse.count")).toEqual({ all: 1 });
    expect(shown("settled.count")).toMatchObject({ "as,completed": 1 });
    expect(shown("store.error.count")).toMatchObject({ "verb,renew": 1, "verb,reserve": 0 });
    expect(shown("tenant.duplicates")).toEqual({ "tenant,acme": 2 });
    expect(shown("outbox.oldest_due")).toEqual({ all: 2.5 });
    const durations = metrics.get("api.idempotency.execute.duration");
    expect(durations?.dataPoints[0]?.value).toMatchObject({ count: 1 });
  });

  it("end when they are told to", async () => {
    const { latchkey, stop, collect } = exported();
    stop();
    await run(latchkey, "a");
    expect(latchkey.engine.events.areHeard).toBe(false);
    expect((await collect()).get("api.idempotency.reserve.created.count")?.dataPoints ?? []).toEqual([]);
  });
});
