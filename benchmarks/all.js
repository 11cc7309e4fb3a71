// Every question, one after the other, each in a process of its own; the answers go to RESULTS.md and plots/.
// `npm run bench` takes about ten minutes. The names of some files ask only those, and write nothing. What takes longer is
// measured by hand, and told in LONG-RUNS.md.
import { fork } from "node:child_process";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { barTable } from "./lib/answer.js";
import { machineFacts } from "./lib/machine.js";
import { startPostgres } from "./lib/postgres.js";
import { draw } from "./lib/progress.js";
import { rounds, seconds } from "./lib/settings.js";
import { tableMarkdown, tableText } from "./lib/tables.js";

/** @typedef {import("./lib/answer.js").Answer} Answer */
/** @typedef {{ file: string, expectedSeconds: number, asksPostgres?: boolean, settings?: Record<string, string> }} Question */
/** @typedef {{ kind: "progress", share: number, line: string } | { kind: "answer", answer: Answer }} Message */
/** @typedef {Question & { answer: Answer, took: number }} Answered */

/** What each is expected to take only serves the progress bar. */
/** @type {readonly Question[]} */
const questions = [
  { file: "postgres-throughput.js", expectedSeconds: 100, asksPostgres: true },
  { file: "postgres-latency.js", expectedSeconds: 55, asksPostgres: true },
  { file: "postgres-replays.js", expectedSeconds: 40, asksPostgres: true },
  {
    file: "table-size.js",
    expectedSeconds: 45,
    asksPostgres: true,
    settings: { FEW_ROWS: "500000", ROWS: "1000000", ROUNDS: "2" },
  },
  { file: "waiters.js", expectedSeconds: 30, asksPostgres: true },
  { file: "redis-throughput.js", expectedSeconds: 30 },
  { file: "stores.js", expectedSeconds: 65, asksPostgres: true, settings: { ROUNDS: "2" } },
  { file: "sqlite-throughput.js", expectedSeconds: 40 },
  { file: "http-overhead.js", expectedSeconds: 105 },
  { file: "http-postgres.js", expectedSeconds: 32, asksPostgres: true },
  { file: "gateway.js", expectedSeconds: 32, settings: { ROUNDS: "2" } },
  { file: "guards.js", expectedSeconds: 60, asksPostgres: true, settings: { ROUNDS: "2" } },
  {
    file: "spray.js",
    expectedSeconds: 40,
    asksPostgres: true,
    settings: { SPRAY_KEYS: "22000", SPRAY_RATE: "2000" },
  },
  { file: "fingerprint.js", expectedSeconds: 16 },
  { file: "footprint.js", expectedSeconds: 15, asksPostgres: true, settings: { KEYS: "10000" } },
  { file: "outbox.js", expectedSeconds: 20, asksPostgres: true, settings: { MESSAGES: "20000" } },
];

const chosen = process.argv.slice(2);
const asked = questions.filter(({ file }) => chosen.length === 0 || chosen.includes(file));
if (asked.length < chosen.length)
  throw new Error(`there are ${questions.map(({ file }) => file).join(", ")}`);
const expectedTotal = asked.reduce((sum, { expectedSeconds }) => sum + expectedSeconds, 0);

const begun = performance.now();
// One server for all of them: each would else begin by making its own.
const postgres = asked.some(({ asksPostgres }) => asksPostgres) ? await startPostgres() : undefined;
/** @type {Answered[]} */
const answered = [];
let expectedSoFar = 0;
for (const question of asked) {
  const from = performance.now();
  const shareOfAll = (/** @type {number} */ share) =>
    Math.min(0.999, (expectedSoFar + share * question.expectedSeconds) / expectedTotal);
  try {
    const answer = await ask(question, (share, line) => draw(shareOfAll(share), `${question.file}: ${line}`));
    answered.push({ ...question, answer, took: (performance.now() - from) / 1000 });
  } catch (error) {
    // The other answers are worth having; what was written before stays as it is.
    console.error(error);
    process.exitCode = 1;
  }
  expectedSoFar += question.expectedSeconds;
}
draw(1, "done");
const minutes = (performance.now() - begun) / 60_000;

for (const { answer } of answered) {
  for (const table of answer.tables) console.log(`${table.title}\n\n${tableText(table)}\n`);
}
const bars = answered.flatMap(({ answer }) => answer.bars ?? []);
console.log(tableText(barTable(bars)));
console.log(`\ntook ${minutes.toFixed(1)} minutes`);
await postgres?.stop();
if (answered.length === questions.length) await write();

/**
 * @param {Question} question
 * @param {(share: number, line: string) => void} progress
 * @returns {Promise<Answer>}
 */
function ask({ file, settings }, progress) {
  const child = fork(fileURLToPath(new URL(file, import.meta.url)), {
    env: {
      ...settings,
      ...process.env,
      ...(postgres && { LATCHKEY_BENCH_POSTGRES_URL: postgres.url }),
      NODE_ENV: "production",
    },
  });
  return new Promise((resolve, reject) => {
    /** @type {Answer | undefined} */
    let answer;
    child.on("message", (/** @type {Message} */ message) => {
      if (message.kind === "progress") progress(message.share, message.line);
      else answer = message.answer;
    });
    child.on("error", reject);
    child.on("exit", (code) => {
      if (answer !== undefined && code === 0) resolve(answer);
      else reject(new Error(`${file} ended with ${code} and without an answer`));
    });
  });
}

async function write() {
  const plots = new URL("plots/", import.meta.url);
  await rm(plots, { recursive: true, force: true });
  await mkdir(plots);
  for (const { file, svg } of answered.flatMap(({ answer }) => answer.plots ?? [])) {
    await writeFile(new URL(file, plots), svg);
  }
  await writeFile(
    new URL("RESULTS.md", import.meta.url),
    results(machineFacts({ postgres: postgres?.version ?? "none" })),
  );
}

/** What whoever wants the same results has to set. */
function changedSettings() {
  return ["ROUNDS", "SECONDS", "KEYS", "SPRAY_KEYS", "SPRAY_RATE", "FEW_ROWS", "ROWS", "MESSAGES"]
    .filter((name) => process.env[name])
    .map((name) => `${name}=${process.env[name]}`);
}

/** @param {readonly (readonly [string, string])[]} facts */
function results(facts) {
  const parts = [
    "# Benchmark results",
    `Written by \`${[...changedSettings(), "npm run bench"].join(" ")}\` in ${minutes.toFixed(1)} minutes: medians of ${rounds} interleaved rounds of ${seconds} s. ` +
      "Load, library and servers share the processors; on a busy machine look at the ratios, and expect ±20 %. " +
      "What takes longer, or more rounds, is in [LONG-RUNS.md](LONG-RUNS.md).",
    tableMarkdown({ columns: ["", ""], rows: facts }),
    "## What was asked for",
    tableMarkdown(barTable(bars)),
    ...answered.flatMap(({ file, answer, took }) => [
      `## \`${file}\``,
      ...answer.tables.flatMap((table) => [`**${table.title}**`, tableMarkdown(table)]),
      ...(answer.plots ?? []).map((plot) => `![${plot.title}](plots/${plot.file})`),
      ...(answer.notes ?? []),
      `Took ${Math.round(took)} s.`,
    ]),
  ];
  return `${parts.join("\n\n")}\n`;
}
