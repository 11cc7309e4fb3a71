import { type CheckResult, linesOf, type Report, summaryOf } from "./report.ts";

/** For build servers. Warnings are passed tests that say something on their output. */
export function reportJunit(report: Report): string {
  const { counts, checks, tookMs, startedAt, url, method, profile } = report;
  const totals = `tests="${checks.length}" failures="${counts.fail}" errors="0" skipped="${counts.skipped}" time="${seconds(tookMs)}"`;
  const properties = { url, method, profile, seesEffects: String(report.seesEffects) };
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites name="latchkey verify" ${totals}>`,
    `  <testsuite name="${escaped(`${method} ${url}`)}" ${totals} timestamp="${escaped(startedAt)}">`,
    "    <properties>",
    ...Object.entries(properties).map(
      ([name, value]) => `      <property name="${name}" value="${escaped(value)}"/>`,
    ),
    "    </properties>",
    ...checks.map(testCase),
    `    <system-out>${escaped(summaryOf(report))}</system-out>`,
    "  </testsuite>",
    "</testsuites>",
    "",
  ].join("\n");
}

function testCase(check: CheckResult): string {
  const { id, topic, title, outcome, reason, tookMs, evidence } = check;
  const inside = () => {
    switch (outcome) {
      case "fail":
        return `<failure message="${escaped(reason)}">${escaped(evidence.flatMap((one) => [...linesOf(one), ""]).join("\n"))}</failure>`;
      case "skipped":
        return `<skipped message="${escaped(reason)}"/>`;
      case "warn":
        return `<system-out>warning: ${escaped(reason)}</system-out>`;
      case "pass":
        return `<system-out>${escaped(reason)}</system-out>`;
      default:
        return outcome satisfies never;
    }
  };
  const name = escaped(`${id}: ${title}`);
  return `    <testcase classname="latchkey.${escaped(topic)}" name="${name}" time="${seconds(tookMs)}">${inside()}</testcase>`;
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(3);
}

/** XML 1.0 has no way at all to write most control characters, so these are replaced. */
function escaped(text: string): string {
  return text
    .replace(/[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "\ufffd")
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}
