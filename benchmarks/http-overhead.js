// How much of a bare framework's throughput is left behind Latchkey, with records in memory, and behind its peers?
import { answerWhenStarted, percent, shareBar, whole } from "./lib/answer.js";
import { httpContender } from "./lib/http.js";
import { barPlot } from "./lib/plot.js";
import { createProgress } from "./lib/progress.js";
import { interleave, medianOf, medianRatio } from "./lib/rounds.js";
import { rounds, seconds } from "./lib/settings.js";

/** @typedef {import("./lib/http.js").Framework} Framework */
/** @typedef {import("./lib/http.js").HttpSample} HttpSample */
/** @typedef {import("./lib/http.js").Protection} Protection */

const connections = 64;
/** What is to be left of the bare framework. */
const asked = {
  express: { fresh: 0.9, replay: 0.95 },
  fastify: { fresh: 0.8, replay: 0.9 },
  hono: { fresh: 0.75, replay: 0.95 },
};
const frameworks = /** @type {Framework[]} */ (Object.keys(asked));
/** @type {Record<Framework, readonly Protection[]>} */
const protections = {
  express: ["latchkey", "node-idempotency", "express-idempotency"],
  fastify: ["latchkey"],
  hono: ["latchkey"],
};
/** @type {Partial<Record<Protection, string>>} */
const names = {
  latchkey: "Latchkey",
  "node-idempotency": "@node-idempotency/core (own glue: its plugin is not on npm)",
  "express-idempotency": "express-idempotency",
};

// Servers that are started alike stay a tenth apart for as long as they run, so those that are asked about are started anew.
const generations = 2;
const roundsOfServers = Math.max(1, rounds - 1);
// Most of the time goes into compiling their code before they are measured.
const turnSeconds = seconds * 0.7;
const warmUpSeconds = seconds * 3;

export async function run() {
  const plans = frameworks.flatMap((framework) => generationsOf(framework));
  const progress = createProgress(roundsOfServers * plans.flat().length);
  /** @type {Record<string, HttpSample[]>} */
  const samples = {};
  for (const plan of plans) {
    for (const [name, own] of Object.entries(await measured(plan, progress))) {
      samples[name] = [...(samples[name] ?? []), ...own];
    }
  }
  return report(samples);
}

/**
 * One framework after the other, since each is compared with nothing but itself. The peers come in the first generation only.
 *
 * @param {Framework} framework
 */
function generationsOf(framework) {
  return Array.from({ length: generations }, (_, generation) => [
    turn(framework, "bare", "fresh"),
    ...protections[framework]
      .filter((protection) => generation === 0 || protection === "latchkey")
      .flatMap((protection) => [turn(framework, protection, "fresh"), turn(framework, protection, "replay")]),
  ]);
}

/**
 * @param {readonly ReturnType<typeof turn>[]} plan
 * @param {ReturnType<typeof createProgress>} progress
 */
async function measured(plan, progress) {
  try {
    return await interleave(
      Object.fromEntries(plan.map(({ name, contender }) => [name, contender.measure])),
      progress,
      { rounds: roundsOfServers },
    );
  } finally {
    for (const { contender } of plan) await contender.stop();
  }
}

/**
 * @param {Framework} framework
 * @param {Protection} protection
 * @param {"fresh" | "replay"} keys
 */
function turn(framework, protection, keys) {
  return {
    name: nameOf(framework, protection, keys),
    contender: httpContender({
      framework,
      protection,
      keys,
      connections,
      seconds: turnSeconds,
      warmUpSeconds,
      isAwake: true,
    }),
  };
}

/**
 * @param {Framework} framework
 * @param {Protection} protection
 * @param {"fresh" | "replay"} keys
 */
function nameOf(framework, protection, keys) {
  return `${framework}, ${protection}, ${keys}`;
}

/**
 * @param {Record<string, HttpSample[]>} samples
 * @returns {import("./lib/answer.js").Answer}
 */
function report(samples) {
  const rate = (
    /** @type {Framework} */ framework,
    /** @type {Protection} */ protection,
    /** @type {"fresh" | "replay"} */ keys,
  ) => medianOf(samples[nameOf(framework, protection, keys)], "rate");
  const cpu = (
    /** @type {Framework} */ framework,
    /** @type {Protection} */ protection,
    /** @type {"fresh" | "replay"} */ keys,
  ) => `${whole(medianOf(samples[nameOf(framework, protection, keys)], "cpu"))} µs`;
  // Each turn next to that of the same round: this machine may be a third slower in the next one.
  const shareOfBare = (
    /** @type {Framework} */ framework,
    /** @type {Protection} */ protection,
    /** @type {"fresh" | "replay"} */ keys,
  ) =>
    medianRatio(
      samples[nameOf(framework, protection, keys)] ?? [],
      samples[nameOf(framework, "bare", "fresh")] ?? [],
      "rate",
    );
  const rows = frameworks.flatMap((framework) => {
    const bare = rate(framework, "bare", "fresh");
    return [
      [framework, "nothing", whole(bare), "", "", "", cpu(framework, "bare", "fresh"), ""],
      ...protections[framework].map((protection) => [
        framework,
        names[protection] ?? protection,
        whole(rate(framework, protection, "fresh")),
        whole(rate(framework, protection, "replay")),
        percent(shareOfBare(framework, protection, "fresh")),
        percent(shareOfBare(framework, protection, "replay")),
        cpu(framework, protection, "fresh"),
        cpu(framework, protection, "replay"),
      ]),
    ];
  });
  const bars = frameworks.flatMap((framework) =>
    /** @type {const} */ (["fresh", "replay"]).map((keys) =>
      shareBar(`${framework} in memory, ${keys}: the bare framework`, {
        rate: shareOfBare(framework, "latchkey", keys),
        of: 1,
        atLeast: asked[framework][keys],
      }),
    ),
  );
  return {
    tables: [
      {
        title: `HTTP requests per second, ${connections} connections, records in memory`,
        columns: [
          "framework",
          "protected by",
          "fresh/s",
          "replay/s",
          "fresh of bare",
          "replay of bare",
          "server CPU, fresh",
          "server CPU, replay",
        ],
        rows,
      },
    ],
    bars,
    notes: [
      `Shares of bare are medians of ${generations * roundsOfServers} comparisons (of ${roundsOfServers} with the peers), each of two turns of one round; the servers were started ${generations} times.`,
    ],
    plots: [
      {
        file: "http-overhead.svg",
        title: "What is left of the bare framework",
        svg: barPlot({
          title: "HTTP throughput that is left of the bare framework, in memory",
          unit: "percent of the bare framework",
          bars: frameworks.flatMap((framework) =>
            protections[framework].flatMap((protection) =>
              /** @type {const} */ (["fresh", "replay"]).map((keys) => ({
                label: `${framework}, ${protection}, ${keys}`,
                value: shareOfBare(framework, protection, keys) * 100,
                isOurs: protection === "latchkey",
              })),
            ),
          ),
        }),
      },
    ],
  };
}

await answerWhenStarted(import.meta.url, run);
