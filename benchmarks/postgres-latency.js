// How long does an operation take on Postgres when requests arrive by themselves, at a rate that nobody slows down?
import { answerWhenStarted, ms, percent, times, whole } from "./lib/answer.js";
import { contendersApart } from "./lib/apart.js";
import { openFigures } from "./lib/load.js";
import { linePlot } from "./lib/plot.js";
import { withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { interleave } from "./lib/rounds.js";
import { rounds, seconds } from "./lib/settings.js";

const ours = /** @type {const} */ ("Latchkey");
const pool = /** @type {const} */ ("pg pool of 20, two statements");
const handlerMs = 5;
const rates = [500, 2_000, 4_000, 8_000, 16_000];
/** Beyond what saturates the pool there is nothing to learn about it. */
const poolRateMax = 4_000;
/**
 * At which the two are compared, in many short turns: the disk stands still for milliseconds now and then, some seconds more
 * often than others, and both are to meet it alike.
 */
const askedRateMax = 2_000;
const roundsOfAsked = 6 * rounds;
const turnOfAsked = { seconds: seconds / 2, warmUpSeconds: Math.min(0.1, seconds / 2) };

export function run() {
  return withPostgres((server) => withDatabase(server, measure));
}

/** @param {string} url */
async function measure(url) {
  const contenders = await contendersApart(url, { [pool]: "pool", [ours]: "latchkey" });
  // What is compared comes one after the other.
  const plan = rates.flatMap((rate) =>
    (rate > poolRateMax ? [ours] : [pool, ours]).map((contender) => ({ contender, rate })),
  );
  try {
    // A backlog from the first moments would stay until the end.
    for (const { warmUp, warmUpAlone } of Object.values(contenders)) {
      await warmUpAlone();
      await warmUp({ callers: 8 });
    }
    // What only one of them can do comes last: its table would be several times as large afterwards.
    const parts = [
      { part: plan.filter(({ rate }) => rate <= askedRateMax), rounds: roundsOfAsked, turn: turnOfAsked },
      { part: plan.filter(({ rate }) => rate > askedRateMax && rate <= poolRateMax), rounds },
      { part: plan.filter(({ rate }) => rate > poolRateMax), rounds },
    ];
    const progress = createProgress(parts.reduce((sum, each) => sum + each.rounds * each.part.length, 0));
    /** @type {Record<string, number[][]>} */
    const samples = {};
    for (const { part, rounds, turn } of parts) {
      const named = part.map(({ contender, rate }) => [
        `${contender}: ${rate}/s`,
        () => contenders[contender].open({ rate, handlerMs, ...turn }),
      ]);
      Object.assign(samples, await interleave(Object.fromEntries(named), progress, { rounds }));
    }
    return report(plan, samples);
  } finally {
    for (const { close } of Object.values(contenders)) await close();
  }
}

/**
 * @param {readonly { contender: string, rate: number }[]} plan
 * @param {Record<string, number[][]>} samples
 * @returns {import("./lib/answer.js").Answer}
 */
function report(plan, samples) {
  const figures = Object.fromEntries(
    Object.entries(samples).map(([turn, ofTurn]) => [turn, openFigures(ofTurn.flat())]),
  );
  const at = (
    /** @type {string} */ contender,
    /** @type {number} */ rate,
    /** @type {keyof import("./lib/load.js").OpenFigures} */ quantity,
  ) => figures[`${contender}: ${rate}/s`]?.[quantity] ?? Number.NaN;
  const beside = (/** @type {number} */ rate) => {
    const ratio = at(ours, rate, "p50") / at(pool, rate, "p50");
    const what = `open loop, ${whole(rate)}/s: p50 of the pool's`;
    return { what, asked: "<= 1.1 x", measured: times(ratio), reached: ratio <= 1.1 };
  };
  const fast = at(ours, 8_000, "p50");
  return {
    tables: [
      {
        title: `Open loop on Postgres: Poisson arrivals, a handler of ${handlerMs} ms, whose own time is not counted`,
        columns: ["contender", "arrivals per second", "p50", "p90", "p99", "failed"],
        rows: [pool, ours]
          .flatMap((name) => plan.filter(({ contender }) => contender === name))
          .map(({ contender, rate }) => [
            contender,
            whole(rate),
            ms(at(contender, rate, "p50")),
            ms(at(contender, rate, "p90")),
            ms(at(contender, rate, "p99")),
            percent(at(contender, rate, "failed")),
          ]),
      },
    ],
    bars: [
      beside(500),
      beside(2_000),
      { what: "open loop, 8,000/s: p50", asked: "< 5 ms", measured: ms(fast), reached: fast < 5 },
    ],
    plots: [
      {
        file: "postgres-latency.svg",
        title: "Latency over the rate of arrivals",
        svg: linePlot({
          title: "What an operation on Postgres adds to its handler (open loop)",
          xLabel: "arrivals per second",
          yLabel: "milliseconds",
          series: [ours, pool].flatMap((contender, kin) =>
            /** @type {const} */ (["p50", "p99"]).map((quantity) => ({
              label: `${contender === ours ? ours : "pg pool"}, ${quantity}`,
              kin,
              isDashed: quantity === "p99",
              points: plan
                .filter((turn) => turn.contender === contender)
                .map(({ rate }) => ({ x: rate, y: at(contender, rate, quantity) }))
                .filter(({ y }) => Number.isFinite(y)),
            })),
          ),
        }),
      },
    ],
  };
}

await answerWhenStarted(import.meta.url, run);
