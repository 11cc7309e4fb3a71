import type { ActivitySeries, ActivityView } from "../../admin/views.ts";

export function total(activity: ActivityView, name: ActivitySeries): number {
  return activity.series[name].reduce((sum, count) => sum + count, 0);
}

export function perSecond(activity: ActivityView, name: ActivitySeries, step: number): number {
  return ((activity.series[name][step] ?? 0) * 1000) / activity.stepMs;
}

/**
 * The times in seconds, and then one line for each name: its own rate on top of those before it. The highest comes first,
 * since each is filled down to zero and what comes later is drawn over it.
 */
export function stacked(
  activity: ActivityView,
  names: readonly ActivitySeries[],
  hidden: ReadonlySet<ActivitySeries>,
): [number[], ...number[][]] {
  const steps = activity.series[names[0] ?? "executed"].length;
  const times = Array.from({ length: steps }, (_, step) => (activity.from + step * activity.stepMs) / 1000);
  const heights = new Array<number>(steps).fill(0);
  const lines = names.map((name) => {
    if (!hidden.has(name)) {
      for (let step = 0; step < steps; step++) {
        heights[step] = (heights[step] ?? 0) + perSecond(activity, name, step);
      }
    }
    return [...heights];
  });
  return [times, ...lines.reverse()];
}
