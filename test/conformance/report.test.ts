import { execFileSync } from "node:child_process";
import { beforeAll, describe, expect, it } from "vitest";
import {
  type Report,
  reportHtml,
  reportJunit,
  reportText,
  summaryOf,
  verify,
} from "../../src/conformance/conformance.ts";
import { WrongServer } from "./wrong-server.ts";

const secret = "s3cret-of-the-caller";
/** What an API may answer with, against whoever reads the report. */
const hostile = `]]></failure><script>alert("1")</script>&'\u001b[2J\u0000\ufffe\u202e`;

let report: Report;
beforeAll(async () => {
  const server = await WrongServer.start("compares nothing");
  const judged = await verify({
    url: `${server.url}?api_key=${secret}`,
    headers: { authorization: `Bearer ${secret}`, "x-session-token": secret },
    body: (n) => ({ amount: n, note: `${secret} ${hostile}` }),
    pauseMs: 0,
    concurrency: 4,
  }).finally(() => server.close());
  // The server gives nothing of the body back, so its answers are made hostile here.
  report = {
    ...judged,
    checks: judged.checks.map((check) => ({ ...check, reason: `${check.reason}${hostile}` })),
  };
});

describe("every form of the report", () => {
  const forms = {
    text: reportText,
    verbose: (one: Report) => reportText(one, { isVerbose: true }),
    junit: reportJunit,
    html: reportHtml,
    json: (one: Report) => JSON.stringify(one),
  };
  it.each(Object.entries(forms))("%s tells what failed, and no secret", (_, form) => {
    const shown = form(report);
    expect(shown).toContain("the same key with another body is refused, and nothing is executed");
    expect(shown).toContain("it was answered with the first request");
    expect(shown).toContain("Bearer ***");
    expect(shown).not.toContain(secret);
  });
});

it("the text ends with a line that says it all, and moves no cursor", () => {
  const shown = reportText(report);
  expect(shown.trimEnd().split("\n").at(-1)).toBe(summaryOf(report));
  expect(summaryOf(report)).toMatch(
    /^\d+ passed, 1 failed, \d+ warnings, \d+ skipped in \d+\.\d s; effects were not looked at$/,
  );
  // biome-ignore lint/suspicious/noControlCharactersInRegex: what must not be there.
  expect(shown).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u202e]/);
  expect(reportText(report, { paint: (colour, text) => `<${colour}>${text}` })).toContain("<red>FAIL");
});

it("JUnit is read by a real XML parser, with every check in it", () => {
  const script = `
import json, sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.stdin.buffer.read())
suite = root.find("testsuite")
cases = suite.findall("testcase")
print(json.dumps({
  "tests": int(suite.get("tests")), "failures": int(suite.get("failures")), "skipped": int(suite.get("skipped")),
  "cases": [[case.get("name"), [child.tag for child in case]] for case in cases],
  "message": suite.find(".//failure").get("message"), "evidence": suite.find(".//failure").text,
}))`;
  const read = JSON.parse(
    execFileSync("python3", ["-c", script], { input: reportJunit(report), encoding: "utf8" }),
  );
  expect(read).toMatchObject({ tests: report.checks.length, failures: 1, skipped: report.counts.skipped });
  const child = { pass: "system-out", warn: "system-out", fail: "failure", skipped: "skipped" };
  expect(read.cases).toEqual(
    report.checks.map(({ id, title, outcome }) => [`${id}: ${title}`, [child[outcome]]]),
  );
  expect(read.message).toContain(`<script>alert("1")</script>&'`);
  expect(read.evidence).toMatch(/> POST http.*\n(.*\n)*< 201 after/);
});

it("HTML is one file without a script, in which nothing that came from outside is markup", () => {
  const page = reportHtml(report);
  expect(page).not.toMatch(/<script|<img|<link|src=|href=|@import|url\(/i);
  expect(page).toContain("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;");
  expect(page).toContain("prefers-color-scheme: dark");
  expect(page).toContain("default-src 'none'");
});

it("JSON is the report itself", () => {
  const read: Report = JSON.parse(JSON.stringify(report));
  expect(read).toEqual(report);
  expect(read).toMatchObject({ profile: "ietf", method: "POST", passed: false, seesEffects: false });
  expect(read.url).toMatch(/\/charges\?api_key=\*\*\*$/);
});

it("bodies are cut, and of a storm only some requests are kept", async () => {
  const server = await WrongServer.start();
  const { checks } = await verify({
    url: server.url,
    body: (n) => ({ amount: n, note: "x".repeat(5000) }),
    pauseMs: 0,
    concurrency: 30,
  }).finally(() => server.close());
  const storm = checks.find(({ id }) => id === "concurrency.at-once");
  expect(storm?.outcome).toBe("pass");
  expect(storm?.evidence).toHaveLength(12);
  expect(storm?.evidenceLeftOut).toBeGreaterThanOrEqual(19);
  expect(storm?.evidence[0]?.requestBody).toMatch(/x… \(cut; 50\d\d characters in all\)$/);
});
