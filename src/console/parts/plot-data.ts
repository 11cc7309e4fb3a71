import { type ActivitySeries, type ActivityView, activitySeries } from "../../admin/views.ts";

/** The same with no more than `stepsMax` steps, each as long as it takes: more would be a fringe and not a line. */
export function coarser(activity: ActivityView, stepsMax: number): ActivityView {
  const steps = activity.series.executed.length;
  const each = Math.ceil(steps / stepsMax);
  if (each <= 1) return activity;
  const series = activitySeries.map((name) => {
    const counts = new Array<number>(Math.ceil(steps / each)).fill(0);
    activity.series[name].forEach((count, step) => {
      const at = Math.floor(step / each);
      counts[at] = (counts[at] ?? 0) + count;
    });
    return [name, counts] as const;
  });
  return {
    from: activity.from,
    stepMs: activity.stepMs * each,
    series: Object.fromEntries(series) as Record<ActivitySeries, number[]>,
  };
}

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
