// Draws docs/images/dashboard.svg: the panels of the Grafana dashboard, by its own definition and queries, over a real
// Prometheus that scrapes a service in trouble. Takes about two minutes: npm run dashboard:picture
import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { expressionOf, legendOf, type Panel, readDashboard } from "../../test/ops/dashboard.ts";
import { runTroubledLoad } from "../../test/ops/troubled-load.ts";
import { startTroubledService } from "../../test/ops/troubled-service.ts";
import { type PrometheusServer, startPrometheus } from "../../test/support/prometheus-server.ts";
import { dashboardSvg } from "./dashboard-svg.ts";
import type { Line, PanelData, TimeRange } from "./panel-data.ts";

const loadSeconds = Number(process.env.SECONDS ?? 90);
const scrapeIntervalMs = 1_000;
const rateSeconds = 5; // Five scrapes: fewer would make the lines nervous, more would smooth the trouble away.
const retentionMs = 20_000; // So that keys expire within the run.
const file = fileURLToPath(new URL("../../docs/images/dashboard.svg", import.meta.url));

const service = await startTroubledService(retentionMs);
const jobs = { payments: service.processes.map(({ target }) => target) };
const prometheus = await startPrometheus({ jobs, scrapeIntervalMs });
try {
  const start = Date.now() / 1000;
  console.log(`A service gets into trouble, for about ${loadSeconds} s.`);
  await runTroubledLoad(service, prometheus, loadSeconds);
  // Rates need some scrapes before they say anything.
  const range = { start: start + rateSeconds, end: Date.now() / 1000 };
  const { panels } = readDashboard();
  const data = await Promise.all(panels.map((panel) => dataOf(prometheus, panel, range)));
  await writeFile(file, dashboardSvg(data, range));
  for (const { panel, lines } of data) {
    if (panel.type !== "row" && lines.length === 0) console.log(`"${panel.title}" shows nothing.`);
  }
  console.log(`Drawn: ${file}`);
} finally {
  await prometheus.stop();
  await service.stop();
}

async function dataOf(server: PrometheusServer, panel: Panel, range: TimeRange): Promise<PanelData> {
  const lines: Line[] = [];
  for (const target of panel.targets ?? []) {
    const expression = expressionOf(target, { rateSeconds });
    for (const { labels, points } of await server.queryRange(expression, { ...range, stepSeconds: 1 })) {
      lines.push({
        name: legendOf(target, labels),
        points: points.filter(([, value]) => Number.isFinite(value)),
      });
    }
  }
  return { panel, lines };
}
