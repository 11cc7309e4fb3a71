import type { Panel } from "../../test/ops/dashboard.ts";

/** What one panel shows: its definition, and what Prometheus answered. */
export interface PanelData {
  readonly panel: Panel;
  readonly lines: readonly Line[];
}

export interface Line {
  readonly name: string;
  readonly points: readonly Point[];
}

/** Seconds since 1970, and the value; finite. */
export type Point = readonly [seconds: number, value: number];

/** Seconds since 1970. */
export interface TimeRange {
  readonly start: number;
  readonly end: number;
}

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}
