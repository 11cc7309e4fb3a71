import { linesOf, type Outcome, type Report, summaryOf } from "./report.ts";

export interface TextOptions {
  /** Colours, where there are any. */
  paint?(colour: "green" | "red" | "yellow" | "dim" | "bold", text: string): string;
  /** The exchanges of every check, not only of those that failed. */
  readonly isVerbose?: boolean;
}

/** For a terminal: what others have written cannot move its cursor. */
export function reportText(report: Report, options: TextOptions = {}): string {
  const { paint = (_, text) => text, isVerbose = false } = options;
  const lines = [
    paint("bold", visible(`${report.method} ${report.url}, by the profile ${report.profile}`)),
    "",
  ];
  let topic = "";
  for (const check of report.checks) {
    if (check.topic !== topic) lines.push(paint("bold", check.topic));
    topic = check.topic;
    lines.push(`  ${paint(colours[check.outcome], words[check.outcome].padEnd(7))}  ${check.title}`);
    lines.push(`           ${paint("dim", visible(check.reason))}`);
    if (check.outcome !== "fail" && !isVerbose) continue;
    for (const exchange of check.evidence) {
      lines.push("", ...linesOf(exchange).map((line) => `           ${visible(line)}`));
    }
    if (check.evidenceLeftOut > 0) lines.push("", `           and ${check.evidenceLeftOut} more requests`);
    lines.push("");
  }
  lines.push("", paint(report.passed ? "green" : "red", summaryOf(report)));
  return `${lines.join("\n")}\n`;
}

const words: Readonly<Record<Outcome, string>> = {
  pass: "pass",
  fail: "FAIL",
  warn: "warning",
  skipped: "skipped",
};
const colours = { pass: "green", fail: "red", warn: "yellow", skipped: "dim" } as const;

function visible(text: string): string {
  return text.replace(/\p{C}/gu, "\ufffd");
}
