import { readFile } from "node:fs/promises";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, describe, expect, test } from "vitest";
import { promtool, startPrometheus } from "../support/prometheus-server.ts";
import { knownMetricNames, metricNamesIn } from "./metric-names.ts";

const rulesFile = fileURLToPath(new URL("../../ops/prometheus/latchkey-alerts.yml", import.meta.url));
const folder = dirname(rulesFile);
const ruleTests = ["latchkey-alerts.test.yml", "latchkey-alerts-day.test.yml"];

interface Rule {
  readonly type: "alerting" | "recording";
  readonly name: string;
  readonly query: string;
  readonly duration?: number;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

let rules: readonly Rule[] = [];
let alerts: readonly Rule[] = [];
beforeAll(async () => {
  // Prometheus itself says what the file means.
  const prometheus = await startPrometheus({ jobs: {}, scrapeIntervalMs: 60_000, ruleFiles: [rulesFile] });
  const { groups } = (await prometheus.ask("rules")) as { groups: readonly { rules: readonly Rule[] }[] };
  await prometheus.stop();
  rules = groups.flatMap((group) => group.rules);
  alerts = rules.filter(({ type }) => type === "alerting");
}, 60_000);

describe("alert rules", () => {
  test("promtool finds no fault with them", async () => {
    expect(await promtool(["check", "rules", rulesFile], folder)).toContain("SUCCESS");
  });

  test("every alert fires above its threshold and is silent below", async () => {
    await promtool(["test", "rules", ...ruleTests], folder);
    const texts = await Promise.all(ruleTests.map((file) => readFile(`${folder}/${file}`, "utf8")));
    for (const { name } of alerts) {
      const silent = new RegExp(`alertname: ${name}, exp_alerts: \\[\\] }`);
      const firing = new RegExp(`alertname: ${name}\\n +exp_alerts:\\n +- exp_labels:`);
      expect(
        texts.some((text) => silent.test(text)),
        `${name} is never expected to be silent`,
      ).toBe(true);
      expect(
        texts.some((text) => firing.test(text)),
        `${name} is never expected to fire`,
      ).toBe(true);
    }
  }, 60_000);

  test("every metric that they name exists", () => {
    for (const { name, query } of rules) {
      const names = metricNamesIn(query);
      expect(names.length, name).toBeGreaterThan(0);
      for (const metric of names) {
        // What a rule records is for others to use.
        const isRecorded = rules.some((rule) => rule.type === "recording" && rule.name === metric);
        expect(isRecorded || knownMetricNames.has(metric), `${name} names ${metric}`).toBe(true);
      }
    }
  });

  test("every alert says how bad it is and where its section in the runbook is", async () => {
    const runbook = await readFile(new URL("../../docs/operations.md", import.meta.url), "utf8");
    const headings = new Set([...runbook.matchAll(/^### (\w+)$/gm)].map(([, heading]) => heading));
    for (const { name, labels, annotations } of alerts) {
      expect(["warning", "critical"], name).toContain(labels?.severity);
      expect(annotations?.summary, name).toMatch(/^[A-Z].*[^.]$/);
      expect(annotations?.description, name).toMatch(/\.$/);
      expect(annotations?.runbook_url, name).toBe(
        `https://latchkey.dev/docs/operations.md#${name.toLowerCase()}`,
      );
      expect(headings, `docs/operations.md has no section for ${name}`).toContain(name);
    }
    const alertSections = [...headings].filter((heading) => heading?.startsWith("Latchkey"));
    expect(alertSections.toSorted()).toEqual(alerts.map(({ name }) => name).toSorted());
  });

  test("no alert tells who the tenants are, or anything else that a client chose", () => {
    const harmless = new Set(["job", "limit", "worker"]);
    for (const { name, annotations } of alerts) {
      for (const [, label = ""] of JSON.stringify(annotations).matchAll(/\$labels\.(\w+)/g)) {
        expect(harmless, name).toContain(label);
      }
    }
  });
});
