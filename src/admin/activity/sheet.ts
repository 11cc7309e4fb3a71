import { type ActivitySeries, activitySeries } from "../views.ts";

/** How finely activity is kept, and for how long. */
export interface Resolution {
  readonly name: string;
  readonly stepMs: number;
  /** How many steps one note holds. */
  readonly steps: number;
  /** What has changed is written no more often than this. */
  readonly writeMs: number;
  /** How far back it can be looked at. */
  readonly windowMsMax: number;
}

/**
 * The finest is written with every turn, so its notes are small. A process that dies takes with it what was not written of
 * the coarser ones, which on their scale is a step at most.
 */
export const resolutions: readonly Resolution[] = [
  { name: "10s", stepMs: 10_000, steps: 60, writeMs: 0, windowMsMax: 3_600_000 },
  { name: "1m", stepMs: 60_000, steps: 360, writeMs: 60_000, windowMsMax: 86_400_000 },
  { name: "10m", stepMs: 600_000, steps: 360, writeMs: 300_000, windowMsMax: 604_800_000 },
];

export function sheetMs({ stepMs, steps }: Resolution): number {
  return stepMs * steps;
}

/** Its last step can be looked at for as long as the window is, and clocks are only known roughly. */
export function sheetTtlMs(resolution: Resolution): number {
  return sheetMs(resolution) + resolution.windowMsMax + 600_000;
}

/** One note of one resolution: what was counted in each of its steps. */
export class Sheet {
  readonly resolution: Resolution;
  readonly from: number;
  readonly #counts = new Map<ActivitySeries, number[]>();

  constructor(resolution: Resolution, from: number) {
    this.resolution = resolution;
    this.from = from;
  }

  static at(resolution: Resolution, now: number): Sheet {
    return new Sheet(resolution, sheetStart(resolution, now));
  }

  holds(now: number): boolean {
    return sheetStart(this.resolution, now) === this.from;
  }

  add(series: ActivitySeries, now: number, count: number): void {
    let counts = this.#counts.get(series);
    if (counts === undefined) {
      counts = Array<number>(this.resolution.steps).fill(0);
      this.#counts.set(series, counts);
    }
    const step = Math.floor((now - this.from) / this.resolution.stepMs);
    counts[step] = (counts[step] ?? 0) + count;
  }

  /** Most steps of most series are 0, and cost a comma. */
  get text(): string {
    const texts = [...this.#counts].map(([series, counts]) => [series, counts.map((n) => n || "").join(",")]);
    return JSON.stringify(Object.fromEntries(texts));
  }
}

/** What a note says, told step by step. One that cannot be read, because a later version wrote it, says nothing. */
export function readSheet(
  text: string,
  tell: (series: ActivitySeries, step: number, count: number) => void,
): void {
  const texts = parsed(text);
  for (const series of activitySeries) {
    const counts = texts[series];
    if (typeof counts !== "string") continue;
    for (const [step, digits] of counts.split(",").entries()) {
      const count = Number(digits);
      if (Number.isSafeInteger(count) && count > 0) tell(series, step, count);
    }
  }
}

export function sheetStart(resolution: Resolution, at: number): number {
  const ms = sheetMs(resolution);
  return Math.floor(at / ms) * ms;
}

/** What a note says, if it is the object that it should be. */
export function parsed(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
