import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type PrometheusServer, type Series, startPrometheus } from "../support/prometheus-server.ts";
import { expressionOf, legendOf, type Panel, readDashboard } from "./dashboard.ts";
import { knownMetricNames, metricNamesIn } from "./metric-names.ts";
import { runTroubledLoad } from "./troubled-load.ts";
import { startTroubledService, type TroubledService } from "./troubled-service.ts";

const dashboard = readDashboard();
const panels = dashboard.panels.filter(({ type }) => type !== "row");
const columns = 24;

describe("the dashboard, as a document", () => {
  test("asks whichever Prometheus is chosen, about whichever jobs are chosen", () => {
    expect(dashboard.schemaVersion).toBeGreaterThanOrEqual(39);
    const variables = dashboard.templating.list.map(({ name, type }) => [name, type]);
    expect(variables).toEqual([
      ["datasource", "datasource"],
      ["job", "query"],
    ]);
    for (const { title, datasource, targets = [] } of panels) {
      for (const source of [datasource, ...targets.map((target) => target.datasource)]) {
        expect(source, title).toEqual({
          type: "prometheus",
          uid: expect.stringMatching(/^\$\{datasource\}$/),
        });
      }
      for (const { expr } of targets) {
        const selectors = expr.match(/api_idempotency_\w+(\{[^}]*\})?/g) ?? [];
        for (const selector of selectors) expect(selector, title).toContain('{job=~"$job"');
      }
    }
  });

  test("every panel says what it shows, in what unit, and what its lines are called", () => {
    for (const { title, description, fieldConfig, options, type, targets = [] } of panels) {
      expect(description, title).toMatch(/^[A-Z0-9].{20,}\.$/);
      expect(["reqps", "ops", "s", "percentunit", "none"], title).toContain(fieldConfig?.defaults.unit);
      if (type === "timeseries") expect(options?.legend?.showLegend, title).toBe(true);
      expect(targets.length, title).toBeGreaterThan(0);
      for (const { legendFormat } of targets) expect(legendFormat, title).not.toBe("");
      expect(new Set(targets.map(({ refId }) => refId)).size, title).toBe(targets.length);
      const drawn = targets.map(({ legendFormat }) => legendFormat);
      for (const { matcher } of fieldConfig?.overrides ?? []) {
        const isDrawn = drawn.includes(matcher.options) || drawn.some((name) => name.includes("{{"));
        expect(isDrawn, `${title} gives a colour to ${matcher.options}, which it does not draw`).toBe(true);
      }
    }
  });

  test("panels fill the grid, and none lies upon another", () => {
    const taken = new Map<string, string>();
    for (const { title, gridPos } of dashboard.panels) {
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(columns);
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          expect(taken.get(`${x},${y}`), title).toBeUndefined();
          taken.set(`${x},${y}`, title);
        }
      }
    }
    const height = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
    expect(taken.size).toBe(columns * height);
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
  });

  test("every metric that it names exists, and every metric is shown", () => {
    const named = new Set(
      panels.flatMap(({ targets = [] }) => targets.flatMap(({ expr }) => metricNamesIn(expr))),
    );
    for (const name of named) expect(knownMetricNames, name).toContain(name);
    const left = [...knownMetricNames].filter((name) => !named.has(name) && !notShown.has(name));
    expect(left).toEqual([]);
  });
});

/** Sums of durations are of use to nobody here; how often the breaker opened is seen in its state. */
const notShown = new Set([
  "api_idempotency_wait_duration_seconds_sum",
  "api_idempotency_execute_duration_seconds_sum",
  "api_idempotency_breaker_opened_total",
  "api_idempotency_reserve_absent_total",
]);

describe("the dashboard, over a service in trouble", () => {
  const scrapeIntervalMs = 500;
  const loadSeconds = 8;
  const begun = Date.now() / 1000;
  let service: TroubledService;
  let prometheus: PrometheusServer;
  beforeAll(async () => {
    service = await startTroubledService(4_000);
    const jobs = { payments: service.processes.map(({ target }) => target) };
    prometheus = await startPrometheus({ jobs, scrapeIntervalMs });
    await runTroubledLoad(service, prometheus, loadSeconds);
  }, 90_000);
  afterAll(async () => {
    await prometheus?.stop();
    await service?.stop();
  });

  const seriesOf = async ({ targets = [] }: Panel): Promise<(readonly Series[])[]> => {
    const range = { start: begun, end: Date.now() / 1000, stepSeconds: 0.5 };
    return Promise.all(
      targets.map((target) => prometheus.queryRange(expressionOf(target, { rateSeconds: 3 }), range)),
    );
  };

  test.each(panels.map((panel) => [panel.title, panel] as const))(
    "%s: every query has an answer",
    async (_, panel) => {
      const answers = await seriesOf(panel);
      for (const [index, series] of answers.entries()) {
        const target = panel.targets?.[index];
        expect(series.length, target?.expr).toBeGreaterThan(0);
        if (target === undefined) continue;
        // What the legend names differs from line to line, or lines could not be told apart.
        const names = series.map(({ labels }) => legendOf(target, labels));
        expect(new Set(names).size, target.expr).toBe(names.length);
        expect(names, target.expr).not.toContain("");
      }
      // What only the store knows is asked of it every few seconds, so the last of it may be yet to come.
      if (!mayBeZero.has(panel.title))
        await expect.poll(() => showsSomething(panel), { timeout: 15_000 }).toBe(true);
    },
  );

  async function showsSomething(panel: Panel): Promise<boolean> {
    const values = (await seriesOf(panel)).flat().flatMap(({ points }) => points.map(([, value]) => value));
    return values.some((value) => Number.isFinite(value) && value > 0);
  }
});

/** A relay that keeps up leaves nothing due whenever somebody looks. */
const mayBeZero = new Set(["Age of the oldest message that is due"]);
