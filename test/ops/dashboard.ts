import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** What is used here of Grafana's model of a dashboard. */
export interface Dashboard {
  readonly title: string;
  readonly uid: string;
  readonly schemaVersion: number;
  readonly templating: { readonly list: readonly { readonly name: string; readonly type: string }[] };
  readonly panels: readonly Panel[];
}

export interface Panel {
  readonly id: number;
  readonly type: "row" | "stat" | "timeseries";
  readonly title: string;
  readonly gridPos: GridPosition;
  readonly description?: string;
  readonly datasource?: { readonly type: string; readonly uid: string };
  readonly fieldConfig?: { readonly defaults: FieldDefaults; readonly overrides: readonly Override[] };
  readonly options?: { readonly legend?: { readonly showLegend: boolean } };
  readonly targets?: readonly Target[];
}

export interface GridPosition {
  readonly h: number;
  readonly w: number;
  readonly x: number;
  readonly y: number;
}

export interface FieldDefaults {
  readonly unit: string;
  readonly decimals?: number;
  readonly max?: number;
  readonly custom?: {
    readonly lineInterpolation: "linear" | "stepAfter";
    readonly stacking: { readonly mode: "none" | "normal" };
  };
  readonly thresholds?: {
    readonly steps: readonly { readonly color: string; readonly value: number | null }[];
  };
  readonly mappings?: readonly {
    readonly options: Readonly<Record<string, { readonly text: string; readonly color: string }>>;
  }[];
}

export interface Override {
  readonly matcher: { readonly id: string; readonly options: string };
  readonly properties: readonly { readonly id: string; readonly value: { readonly fixedColor: string } }[];
}

export interface Target {
  readonly refId: string;
  readonly expr: string;
  readonly legendFormat: string;
  readonly datasource: { readonly type: string; readonly uid: string };
}

export const dashboardFile = fileURLToPath(
  new URL("../../ops/grafana/latchkey-dashboard.json", import.meta.url),
);

export function readDashboard(): Dashboard {
  return JSON.parse(readFileSync(dashboardFile, "utf8")) as Dashboard;
}

/** An expression as Grafana would send it, for all jobs. */
export function expressionOf({ expr }: Target, { rateSeconds }: { readonly rateSeconds: number }): string {
  return expr.replaceAll("$__rate_interval", `${rateSeconds}s`).replaceAll("$job", ".*");
}

/** What a series is called in the legend. */
export function legendOf({ legendFormat }: Target, labels: Readonly<Record<string, string>>): string {
  return legendFormat.replaceAll(/\{\{(\w+)\}\}/g, (_, name: string) => labels[name] ?? "");
}
