import type { FieldDefaults } from "../../test/ops/dashboard.ts";

/** A value as the axis says it. */
export function spelled(value: number, { unit, decimals, mappings }: FieldDefaults): string {
  const mapped = mappings?.[0]?.options[String(value)];
  if (mapped !== undefined) return mapped.text;
  switch (unit) {
    case "reqps":
      return `${short(value, decimals)} req/s`;
    case "ops":
      return `${short(value, decimals)} /s`;
    case "percentunit":
      return `${short(value * 100, decimals)} %`;
    case "s":
      return value !== 0 && Math.abs(value) < 1 ? `${short(value * 1000)} ms` : `${short(value)} s`;
    default:
      return short(value, decimals);
  }
}

function short(value: number, decimals?: number): string {
  if (decimals !== undefined) return value.toFixed(decimals);
  return String(Number(value.toPrecision(3)));
}

/** Four or five round numbers from 0 to the highest value. */
export function ticksTo(highest: number, { isWhole }: { readonly isWhole: boolean }): number[] {
  const rough = (highest > 0 ? highest : 1) / 4;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 2.5, 5, 10].find((candidate) => candidate * magnitude >= rough) ?? 10;
  const step = isWhole ? Math.max(1, Math.ceil(factor * magnitude)) : factor * magnitude;
  const count = Math.max(1, Math.ceil(highest / step));
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}
