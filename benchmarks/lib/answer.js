import { fileURLToPath } from "node:url";
import { tableText } from "./tables.js";

/** @typedef {{ title: string, columns: readonly string[], rows: readonly (readonly string[])[] }} Table */
/** @typedef {{ what: string, asked: string, measured: string, reached: boolean }} Bar what was asked for, and whether it is so */
/** @typedef {{ file: string, title: string, svg: string }} Plot */
/**
 * What a benchmark found out.
 * @typedef {{ tables: readonly Table[], bars?: readonly Bar[], plots?: readonly Plot[], notes?: readonly string[] }} Answer
 */

/**
 * Runs the benchmark when its file was started, and not when it was imported: prints the answer, or hands it to the
 * process that runs all of them.
 *
 * @param {string} url of the file
 * @param {() => Promise<Answer>} run
 */
export async function answerWhenStarted(url, run) {
  if (process.argv[1] !== fileURLToPath(url)) return;
  const begun = performance.now();
  // Whoever runs all of them is gone: so is the reason to go on.
  const stop = () => process.exit(1);
  process.once("disconnect", stop);
  const answer = await run();
  process.off("disconnect", stop);
  if (process.send !== undefined) {
    process.send({ kind: "answer", answer });
    process.disconnect();
    return;
  }
  for (const table of answer.tables) console.log(`${table.title}\n\n${tableText(table)}\n`);
  if (answer.bars?.length) console.log(`${tableText(barTable(answer.bars))}\n`);
  for (const note of answer.notes ?? []) console.log(note);
  console.log(`took ${Math.round((performance.now() - begun) / 1000)} s`);
}

/**
 * @param {readonly Bar[]} bars
 * @returns {Table}
 */
export function barTable(bars) {
  return {
    title: "What was asked for",
    columns: ["what", "asked", "measured", "reached"],
    rows: bars.map(({ what, asked, measured, reached }) => [what, asked, measured, reached ? "yes" : "no"]),
  };
}

/**
 * One thing is to be at least so many times as fast as another.
 *
 * @param {string} what
 * @param {{ rate: number, of: number, atLeast: number }} measured
 * @returns {Bar}
 */
export function ratioBar(what, { rate, of, atLeast }) {
  const ratio = rate / of;
  return { what, asked: `>= ${atLeast} x`, measured: `${times(ratio)}`, reached: ratio >= atLeast };
}

/**
 * @param {string} what
 * @param {{ rate: number, of: number, atLeast: number }} measured a share from 0 to 1
 * @returns {Bar}
 */
export function shareBar(what, { rate, of, atLeast }) {
  const share = rate / of;
  return { what, asked: `>= ${percent(atLeast)}`, measured: percent(share), reached: share >= atLeast };
}

export const whole = (/** @type {number} */ number) => Math.round(number).toLocaleString("en");
export const times = (/** @type {number} */ ratio) => `${ratio.toFixed(2)} x`;
export const percent = (/** @type {number} */ share) => `${Math.round(share * 100)} %`;
export const ms = (/** @type {number} */ number) =>
  Number.isFinite(number) ? `${number.toFixed(number < 10 ? 2 : 0)} ms` : "no answer";
