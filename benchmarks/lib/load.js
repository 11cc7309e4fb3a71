import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { seconds as secondsOfTurn } from "./settings.js";
import { percentile } from "./statistics.js";

/** @typedef {{ rate: number, p50: number, p99: number, cpu: number }} ClosedSample per second, ms, ms, µs per operation */
/** @typedef {{ p50: number, p90: number, p99: number, failed: number }} OpenFigures ms, and a share of all requests */

const warmUpSecondsMax = 0.4; // Connections are made, code is compiled, batches have found their size.
const warmUpOf = (/** @type {number} */ seconds) => Math.min(warmUpSecondsMax, seconds);

/**
 * A closed loop: each caller begins its next operation when its last one has ended.
 *
 * @param {object} options
 * @param {number} options.callers
 * @param {() => Promise<unknown>} options.operation
 * @param {number} [options.seconds]
 * @param {number} [options.warmUpSeconds]
 * @returns {Promise<ClosedSample>}
 */
export async function closedLoop({
  callers,
  operation,
  seconds = secondsOfTurn,
  warmUpSeconds = warmUpOf(seconds),
}) {
  const begun = performance.now();
  const countFrom = begun + 1000 * warmUpSeconds;
  const countUntil = countFrom + 1000 * seconds;
  /** @type {number[]} */
  const latencies = [];
  /** @type {NodeJS.CpuUsage | undefined} */
  let cpuBefore;
  /** @type {NodeJS.CpuUsage | undefined} */
  let cpu;
  // No timers: operations that never leave the process would starve them.
  const call = async () => {
    for (let from = performance.now(); from < countUntil; ) {
      await operation();
      const to = performance.now();
      if (to >= countFrom && to < countUntil) {
        cpuBefore ??= process.cpuUsage();
        latencies.push(to - from);
      }
      from = to;
    }
    cpu ??= process.cpuUsage(cpuBefore);
  };
  await Promise.all(Array.from({ length: callers }, call));
  return {
    rate: latencies.length / seconds,
    p50: percentile(latencies, 0.5),
    p99: percentile(latencies, 0.99),
    cpu: cpu === undefined ? Number.NaN : (cpu.user + cpu.system) / latencies.length,
  };
}

/**
 * What is asked is how a process does that has been running for a while: its connections are made, and its code, of which
 * some contenders have more than others, is compiled.
 *
 * A lone call goes another way than a crowd, and that way would else be compiled while it is measured.
 *
 * @param {Iterable<{ operation(): Promise<unknown> }>} contenders
 * @param {{ callers?: readonly number[] }} [options]
 */
export async function warmUp(contenders, { callers = [1, 64] } = {}) {
  for (const { operation } of contenders) {
    for (const count of callers) {
      await closedLoop({
        callers: count,
        operation: () => operation(),
        seconds: Math.min(1.2, secondsOfTurn),
      });
    }
  }
}

/**
 * The way of a lone call takes some ten thousand calls until all of it is compiled, which one caller makes in a quarter of a
 * minute. So at first there are several contenders, and one caller for each; and calls are counted, since on a slow day the same
 * time would leave more of it uncompiled.
 *
 * @param {() => Promise<import("./contenders.js").Contender>} open
 */
export async function warmUpAlone(open) {
  /** @type {import("./contenders.js").Contender[]} */
  const contenders = [];
  for (let count = 0; count < lonely; count += 1) contenders.push(await open());
  const until = performance.now() + 1000 * Math.min(12, 24 * secondsOfTurn);
  let calls = 0;
  await Promise.all(
    contenders.map(async ({ operation }) => {
      for (; calls < callsUntilCompiled && performance.now() < until; calls += 1) await operation();
    }),
  );
  for (const { close } of contenders) await close();
}

/** Each has its own connections, and waits for none of the others. */
const lonely = 4;

/** Measured: from then on a lone caller's rate does not rise any more. */
const callsUntilCompiled = 16_000;

/** More requests than this at once are a queue that only grows: no server of this size has so many under way. */
const outstandingMax = 4_000;

/**
 * An open loop: requests arrive at random moments (Poisson), whether or not earlier ones have been answered. What is
 * late stays late, and counts from when it was to begin; what failed, or was not even begun because too many were
 * waiting, took for ever. The handler's own time is not counted.
 *
 * @param {object} options
 * @param {number} options.rate arrivals per second
 * @param {number} options.handlerMs how long the handler waits for somebody else
 * @param {(handler: () => Promise<void>) => Promise<unknown>} options.operation
 * @param {number} [options.seconds]
 * @param {number} [options.warmUpSeconds]
 * @returns {Promise<number[]>} what each request took, in ms
 */
export async function openLoop({
  rate,
  handlerMs,
  operation,
  seconds = secondsOfTurn,
  warmUpSeconds = warmUpOf(seconds),
}) {
  /** @type {Promise<number>[]} */
  const requests = [];
  const countFrom = performance.now() + 1000 * warmUpSeconds;
  const countUntil = countFrom + 1000 * seconds;
  let due = performance.now();
  let outstanding = 0;
  for (let arrivals = 1; ; arrivals += 1) {
    due += (-Math.log(1 - Math.random()) / rate) * 1000;
    if (due > countUntil) break;
    // Timers know milliseconds only; for what is nearer, the event loop goes round without sleeping.
    const earlyMs = due - performance.now();
    if (earlyMs > 2) await sleep(earlyMs - 1);
    while (performance.now() < due) await nextTurn();
    outstanding += 1;
    const request = (outstanding > outstandingMax ? never : timed(due, handlerMs, operation)).finally(() => {
      outstanding -= 1;
    });
    if (due >= countFrom) requests.push(request);
    // The process under load has to read its sockets between two arrivals that are both due.
    if (arrivals % 16 === 0) await nextTurn();
  }
  return Promise.all(requests);
}

/**
 * @param {readonly number[]} latencies of one turn or of several: one with few requests tells little about the slow ones
 * @returns {OpenFigures}
 */
export function openFigures(latencies) {
  return {
    p50: percentile(latencies, 0.5),
    p90: percentile(latencies, 0.9),
    p99: percentile(latencies, 0.99),
    failed: latencies.filter((latency) => latency === Number.POSITIVE_INFINITY).length / latencies.length,
  };
}

const never = Promise.resolve(Number.POSITIVE_INFINITY);

/**
 * @param {number} due
 * @param {number} handlerMs
 * @param {(handler: () => Promise<void>) => Promise<unknown>} operation
 */
async function timed(due, handlerMs, operation) {
  let inHandler = 0;
  try {
    await operation(async () => {
      const from = performance.now();
      await sleep(handlerMs);
      inHandler = performance.now() - from;
    });
  } catch {
    return Number.POSITIVE_INFINITY;
  }
  return performance.now() - due - inHandler;
}

/**
 * Does something once with each item, so many at a time.
 *
 * @template Item
 * @param {Iterable<Item>} items
 * @param {(item: Item) => Promise<unknown>} work
 * @param {number} [callers]
 */
export async function forEachOf(items, work, callers = 256) {
  const left = items[Symbol.iterator]();
  const call = async () => {
    for (let next = left.next(); !next.done; next = left.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: callers }, call));
}
