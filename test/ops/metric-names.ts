import { instruments, prometheusName } from "../../src/observe/instruments.ts";

/** Every name under which the endpoint tells something. */
export const knownMetricNames: ReadonlySet<string> = new Set(
  [...instruments.values()].flatMap((instrument) => {
    const name = prometheusName(instrument);
    return instrument.kind === "histogram" ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name];
  }),
);

/** The metrics of Latchkey that an expression names, and what rules have recorded of them. */
export function metricNamesIn(expression: string): string[] {
  return [...new Set(expression.match(/(?:\w+:)?api_idempotency_\w+(?::\w+)?/g) ?? [])];
}
