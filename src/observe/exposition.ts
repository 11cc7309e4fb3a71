import type { HistogramReading } from "./histogram.ts";
import { prometheusName } from "./instruments.ts";
import type { Reading } from "./meters.ts";

/** The text format of Prometheus, which every scraper reads. */
export const expositionType = "text/plain; version=0.0.4; charset=utf-8";

export function exposition(readings: readonly Reading[]): string {
  return readings.map(family).join("");
}

function family(reading: Reading): string {
  const { instrument } = reading;
  const name = prometheusName(instrument);
  const head = `# HELP ${name} ${escapedHelp(instrument.help)}\n# TYPE ${name} ${instrument.kind}\n`;
  if ("histogram" in reading) return head + histogramLines(name, reading.histogram);
  const lines = reading.samples.map(({ label, value }) => {
    const labels =
      instrument.label === undefined ? "" : `{${instrument.label.name}="${escapedLabel(label ?? "")}"}`;
    return `${name}${labels} ${value}\n`;
  });
  return head + lines.join("");
}

/** Buckets are cumulative here, and the last one holds everything. */
function histogramLines(name: string, { bounds, counts, sum }: HistogramReading): string {
  let total = 0;
  const buckets = counts.map((count, at) => {
    total += count;
    return `${name}_bucket{le="${bounds[at] ?? "+Inf"}"} ${total}\n`;
  });
  return `${buckets.join("")}${name}_sum ${sum}\n${name}_count ${total}\n`;
}

function escapedHelp(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
}

function escapedLabel(text: string): string {
  return escapedHelp(text).replaceAll('"', '\\"');
}
