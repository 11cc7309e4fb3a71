import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { seconds } from "./settings.js";
import { percentile } from "./statistics.js";

/**
 * @typedef {object} Side
 * @property {(key?: string, handler?: () => Promise<void>) => Promise<unknown>} operation
 * @property {(key: string) => Promise<unknown>} wait a duplicate that waits for the answer
 */

const settleMs = 25; // By then the duplicate has found the key taken and begun to wait.

/**
 * Milliseconds from when the first caller has its answer, which is when the commit is known, until its duplicate has it.
 *
 * @param {Side} first
 * @param {Side} second
 */
export async function wakeUp(first, second) {
  const delays = [];
  for (const end = performance.now() + seconds * 1000; performance.now() < end || delays.length === 0; ) {
    const key = randomUUID();
    const handler = gate();
    const begun = gate();
    const committed = first
      .operation(key, () => {
        begun.open();
        return handler.opened;
      })
      .then(() => performance.now());
    await begun.opened;
    const woken = second.wait(key).then(() => performance.now());
    await sleep(settleMs);
    handler.open();
    delays.push((await woken) - (await committed));
  }
  return { p50: percentile(delays, 0.5), p99: percentile(delays, 0.99), count: delays.length };
}

function gate() {
  let open = () => {};
  const opened = new Promise((/** @type {(value: void) => void} */ resolve) => {
    open = resolve;
  });
  return { open, opened };
}
