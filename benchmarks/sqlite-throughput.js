// How many fresh operations per second does Latchkey do on a durable SQLite file, next to a transaction for each step?
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { answerWhenStarted, ratioBar, times } from "./lib/answer.js";
import { sqliteContendersApart } from "./lib/apart.js";
import { closedRows, timesAsFast } from "./lib/closed-rows.js";
import { barPlot } from "./lib/plot.js";
import { createProgress } from "./lib/progress.js";
import { interleave, medianOf, turns } from "./lib/rounds.js";

const ours = "Latchkey, FULL";
const plain = "libsql, a transaction for each step, FULL";
const callerCounts = [1, 64, 256];

export async function run() {
  const folder = await mkdtemp(join(tmpdir(), "latchkey-bench-"));
  const contenders = await sqliteContendersApart(folder, {
    [plain]: "plain",
    "the least that gathers: no engine, three columns, FULL": "floor",
    [ours]: "latchkey",
    "Latchkey, FULL, groupCommit: false": "latchkeyPlain",
    "Latchkey, NORMAL": "latchkeyNormal",
  });
  try {
    for (const { warmUp } of Object.values(contenders)) await warmUp({ callers: 64 });
    const plan = callerCounts.flatMap((callers) =>
      Object.entries(contenders)
        .filter(([contender]) => callers === 64 || contender === ours || contender === plain)
        .map(([contender, { fresh }]) => ({ contender, callers, measure: () => fresh({ callers }) })),
    );
    const samples = await interleave(
      Object.fromEntries(
        plan.map(({ contender, callers, measure }) => [`${contender}: ${callers}`, measure]),
      ),
      createProgress(turns(plan.length)),
    );
    return report(plan, samples);
  } finally {
    for (const { close } of Object.values(contenders)) await close();
    await rm(folder, { recursive: true });
  }
}

/**
 * @param {readonly { contender: string, callers: number }[]} plan
 * @param {Record<string, import("./lib/load.js").ClosedSample[]>} samples
 * @returns {import("./lib/answer.js").Answer}
 */
function report(plan, samples) {
  const rate = (/** @type {string} */ contender, /** @type {number} */ callers) =>
    medianOf(samples[`${contender}: ${callers}`], "rate");
  return {
    tables: [
      {
        title: "Fresh operations per second on SQLite (reserve + complete, 300-byte responses, UUID keys)",
        columns: ["contender", "callers", "per second", "p50", "p99", "CPU per operation", `${ours}, is`],
        rows: closedRows(plan, samples, ours),
      },
    ],
    bars: [
      ratioBar("SQLite FULL, 64 callers: a transaction for each step", {
        rate: timesAsFast(samples, { ours, contender: plain, callers: 64 }),
        of: 1,
        atLeast: 10,
      }),
    ],
    plots: [
      {
        file: "sqlite-throughput.svg",
        title: "Fresh operations per second on SQLite",
        svg: barPlot({
          title: "Fresh operations on SQLite, 64 callers",
          unit: "operations per second (and of one by one)",
          bars: plan
            .filter(({ callers }) => callers === 64)
            .map(({ contender }) => ({
              label: contender.replace("a transaction for each step", "one by one"),
              value: rate(contender, 64),
              note: times(rate(contender, 64) / rate(plain, 64)),
              isOurs: contender === ours,
            })),
        }),
      },
    ],
  };
}

await answerWhenStarted(import.meta.url, run);
