// How soon after the commit does a waiting duplicate in another process have its answer, and what does that cost?
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { answerWhenStarted, ms, percent, shareBar, whole } from "./lib/answer.js";
import { latchkeyOn } from "./lib/contenders.js";
import { closedLoop, warmUp } from "./lib/load.js";
import { withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { interleave, medianOf, medianRatio, turns } from "./lib/rounds.js";
import { wakeUp } from "./lib/wake-up.js";

/** @typedef {Awaited<ReturnType<typeof latchkeyOn>>} Side */

const listening = "LISTEN/NOTIFY (listen: true)";
const polling = "polling (the default)";
const callers = 64;
const waiterEvery = 20; // One operation in so many has a waiting duplicate.

export function run() {
  return withPostgres((server) => withDatabase(server, measure));
}

/**
 * @param {string} url
 * @returns {Promise<import("./lib/answer.js").Answer>}
 */
async function measure(url) {
  // Two Latchkeys are two processes to each other: they share nothing but the database.
  const first = await latchkeyOn(url);
  const poller = await latchkeyOn(url);
  const listener = await latchkeyOn(url, { listen: true });
  const firstAndListening = await latchkeyOn(url, { listen: true });
  const wakeUps = {
    [listening]: () => wakeUp(first, listener),
    [polling]: () => wakeUp(first, poller),
  };
  const prices = {
    "nobody listens, nobody waits": () => closedLoop({ callers, operation: () => first.operation() }),
    "all listen, nobody waits": () => closedLoop({ callers, operation: () => firstAndListening.operation() }),
    "one in 20 is waited for by polling": () => withWaiters(first, poller),
    "one in 20 is waited for by listening": () => withWaiters(firstAndListening, listener),
  };
  try {
    await warmUp([first, poller, listener, firstAndListening]);
    const progress = createProgress(turns(Object.keys(wakeUps).length + Object.keys(prices).length));
    return report(await interleave(wakeUps, progress), await interleave(prices, progress));
  } finally {
    for (const { close } of [first, poller, listener, firstAndListening]) await close();
  }
}

/**
 * The throughput of operations of which some are waited for elsewhere.
 *
 * @param {Side} first
 * @param {Side} second
 */
async function withWaiters(first, second) {
  let begun = 0;
  /** @type {Promise<unknown>[]} */
  const waiting = [];
  const sample = await closedLoop({
    callers,
    operation() {
      begun += 1;
      if (begun % waiterEvery !== 0) return first.operation();
      const key = randomUUID();
      return first.operation(key, async () => {
        waiting.push(second.wait(key));
        await sleep(5); // Else most would be done before their duplicate has asked.
      });
    },
  });
  await Promise.all(waiting);
  return sample;
}

/**
 * @param {Record<string, { p50: number, p99: number, count: number }[]>} wakeUps
 * @param {Record<string, import("./lib/load.js").ClosedSample[]>} prices
 * @returns {import("./lib/answer.js").Answer}
 */
function report(wakeUps, prices) {
  const p50 = medianOf(wakeUps[listening], "p50");
  const rate = (/** @type {string} */ name) => medianOf(prices[name], "rate");
  const [alone = "", allListen = "", polled = "", heard = ""] = Object.keys(prices);
  // Each turn next to that of the same round: a few percent are asked about.
  const share = (/** @type {string} */ name, /** @type {string} */ of) =>
    medianRatio(prices[name], prices[of], "rate");
  return {
    tables: [
      {
        title: "From the commit until a waiting duplicate in another process has its answer (Postgres)",
        columns: ["how it waits", "p50", "p99"],
        rows: Object.entries(wakeUps).map(([name, samples]) => [
          name,
          ms(medianOf(samples, "p50")),
          ms(medianOf(samples, "p99")),
        ]),
      },
      {
        title: `What that costs: fresh operations per second, ${callers} callers`,
        columns: ["while", "per second", "of the same without listening"],
        rows: [
          [alone, whole(rate(alone)), ""],
          [allListen, whole(rate(allListen)), percent(share(allListen, alone))],
          [polled, whole(rate(polled)), ""],
          [heard, whole(rate(heard)), percent(share(heard, polled))],
        ],
      },
    ],
    bars: [
      {
        what: "a waiter wakes after the commit, p50",
        asked: "<= 1 ms",
        measured: ms(p50),
        reached: p50 <= 1,
      },
      shareBar("throughput when all listen", { rate: share(allListen, alone), of: 1, atLeast: 0.9 }),
      shareBar("throughput when one in 20 is waited for", {
        rate: share(heard, polled),
        of: 1,
        atLeast: 0.9,
      }),
    ],
  };
}

await answerWhenStarted(import.meta.url, run);
