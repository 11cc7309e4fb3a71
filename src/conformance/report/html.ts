import { type CheckResult, linesOf, type Outcome, type Report, summaryOf } from "./report.ts";

/** One file that needs no other, runs no script, and is for people who were not there. */
export function reportHtml(report: Report): string {
  const { url, method, profile, startedAt, passed, checks } = report;
  const topics = [...new Set(checks.map(({ topic }) => topic))];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>${escaped(`${passed ? "Passed" : "Failed"}: ${method} ${url}`)}</title>
<style>${style}</style>
</head>
<body>
<main>
<h1>${escaped(`${method} ${url}`)}</h1>
<p>Idempotency keys, judged from outside by the profile <code>${escaped(profile)}</code> on
<time datetime="${escaped(startedAt)}">${escaped(startedAt.replace("T", " ").slice(0, 19))} UTC</time>.</p>
<p class="summary ${passed ? "pass" : "fail"}">${escaped(summaryOf(report))}</p>
${topics
  .map(
    (topic) => `<section>
<h2>${escaped(topic)}</h2>
${checks
  .filter((check) => check.topic === topic)
  .map(checkHtml)
  .join("\n")}
</section>`,
  )
  .join("\n")}
</main>
</body>
</html>
`;
}

const words: Readonly<Record<Outcome, string>> = {
  pass: "pass",
  fail: "fail",
  warn: "warning",
  skipped: "skipped",
};

function checkHtml({ id, title, outcome, reason, evidence, evidenceLeftOut }: CheckResult): string {
  const more = evidenceLeftOut === 0 ? "" : `<p>and ${evidenceLeftOut} more requests</p>`;
  const shown =
    evidence.length === 0
      ? ""
      : `<details${outcome === "fail" ? " open" : ""}><summary>${evidence.length} of its requests</summary>
${evidence.map((exchange) => `<pre>${escaped(linesOf(exchange).join("\n"))}</pre>`).join("\n")}${more}</details>`;
  return `<article id="${escaped(id)}">
<h3><span class="${outcome}">${words[outcome]}</span> ${escaped(title)}</h3>
<p>${escaped(reason)}</p>
${shown}</article>`;
}

function escaped(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("'", "&#39;");
}

const style = `
:root { --text: #1c2024; --back: #fff; --soft: #f3f4f6; --dim: #5b6470; --pass: #17653a; --fail: #b3261e; --warn: #7a5200; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e8eb; --back: #15181c; --soft: #20252b; --dim: #a3adb8; --pass: #6fd39a; --fail: #ff8a80; --warn: #f0c060; }
}
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
h3 { font-size: 1rem; margin: 1rem 0 0; }
article p { margin: 0 0 0.3rem; color: var(--dim); }
h3 span { display: inline-block; min-width: 4.5rem; }
.pass { color: var(--pass); } .fail { color: var(--fail); } .warn { color: var(--warn); } .skipped { color: var(--dim); }
.summary { font-weight: 600; }
pre { background: var(--soft); padding: 0.7rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.85rem; }
`;
