/** How durations and sizes may be written, and what they come to. */

const durationUnits: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

const sizeUnits: Readonly<Record<string, number>> = {
  B: 1,
  KiB: 1_024,
  MiB: 1_024 ** 2,
  GiB: 1_024 ** 3,
  // Ten-based ones too: whoever writes MB gets a MB, and is not surprised by 5 %.
  kB: 1_000,
  MB: 1_000 ** 2,
  GB: 1_000 ** 3,
};

export const durationPattern = /^\d+(\.\d+)?(ms|s|m|h|d)$/;
export const sizePattern = /^\d+(\.\d+)?(B|KiB|MiB|GiB|kB|MB|GB)$/;

/** Milliseconds: a number as it is, a text by its unit. */
export function millisecondsOf(duration: number | string): number {
  return amountOf(duration, durationUnits);
}

/** Bytes: a number as it is, a text by its unit. */
export function bytesOf(size: number | string): number {
  return amountOf(size, sizeUnits);
}

function amountOf(text: number | string, units: Readonly<Record<string, number>>): number {
  if (typeof text === "number") return text;
  const [, number = "", unit = ""] = /^([\d.]+)([a-z]+)$/i.exec(text) ?? [];
  return Math.round(Number(number) * (units[unit] ?? Number.NaN));
}
