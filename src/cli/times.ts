/** For people: when something was or will be, as seen at `now`. */
export function relative(at: number, now: number): string {
  const distance = lengthOfTime(Math.abs(at - now));
  if (distance === lengthOfTime(0)) return "now";
  return at <= now ? `${distance} ago` : `in ${distance}`;
}

/** The moment itself. In UTC, because those who compare notes sit in different places. */
export function absolute(at: number): string {
  // Beyond what a date can be: a record that never expires.
  if (!(Math.abs(at) <= 8.64e15)) return "never";
  return `${new Date(at).toISOString().slice(0, 19).replace("T", " ")}Z`;
}

export function both(at: number, now: number): string {
  return `${absolute(at)} (${relative(at, now)})`;
}

/** In the largest unit that there are at least two of. */
export function lengthOfTime(ms: number): string {
  const [unitMs, unit] = units.find(([unitMs]) => ms >= 2 * unitMs) ?? [1_000, "s"];
  return `${Math.floor(ms / unitMs)} ${unit}`;
}

const units: readonly (readonly [unitMs: number, unit: string])[] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1_000, "s"],
];
