import { once } from "node:events";
import { startChild } from "./child.js";

/**
 * @typedef {"pool" | "preparedPool" | "floor" | "latchkey" | "latchkeyPlain" | "latchkeyCached" | "nodeIdempotency"
 *   | "nodeIdempotencyLogged" | "nodeIdempotencyCore"} Kind
 */
/** @typedef {"plain" | "floor" | "latchkey" | "latchkeyPlain" | "latchkeyNormal"} SqliteKind */
/** @typedef {import("./load.js").ClosedSample} ClosedSample */

/**
 * @typedef {object} Tasks
 * @property {(options: { callers: number }) => Promise<void>} warmUp with so many
 * @property {() => Promise<void>} warmUpAlone with lone callers
 * @property {(options: { callers: number }) => Promise<ClosedSample>} fresh keys that nobody has sent
 * @property {(turn: { rate: number, handlerMs: number, seconds?: number, warmUpSeconds?: number }) => Promise<number[]>} open each request's ms
 * @property {(options: { keys: readonly string[] }) => Promise<void>} fill executes a request for each key
 * @property {(options: { keys: readonly string[] }) => Promise<void>} see each answer once
 * @property {(options: { callers: number, keys: readonly string[] }) => Promise<ClosedSample>} replays of random ones
 */

/** @typedef {Tasks & { close(): Promise<void> }} Apart */

/**
 * Those who are measured on Postgres, each in a process of its own.
 *
 * @template {string} Name
 * @param {string} url
 * @param {Record<Name, Kind>} kinds
 * @returns {Promise<Record<Name, Apart>>}
 */
export function contendersApart(url, kinds) {
  return eachApart("postgres-contender.js", url, kinds);
}

/**
 * The same on SQLite, each with a file of its own.
 *
 * @template {string} Name
 * @param {string} folder
 * @param {Record<Name, SqliteKind>} kinds
 * @returns {Promise<Record<Name, Apart>>}
 */
export function sqliteContendersApart(folder, kinds) {
  return eachApart("sqlite-contender.js", folder, kinds);
}

/**
 * @template {string} Name
 * @param {string} program
 * @param {string} place
 * @param {Record<Name, string>} kinds
 * @returns {Promise<Record<Name, Apart>>}
 */
async function eachApart(program, place, kinds) {
  const contenders = /** @type {Record<Name, Apart>} */ ({});
  for (const name of /** @type {Name[]} */ (Object.keys(kinds))) {
    contenders[name] = await contenderApart(program, kinds[name], place);
  }
  return contenders;
}

/**
 * @param {string} program
 * @param {string} kind
 * @param {string} place
 * @returns {Promise<Apart>}
 */
async function contenderApart(program, kind, place) {
  const { child, exit } = await startChild(program, [kind, place]);
  const ask = async (/** @type {string} */ task, /** @type {object} */ options = {}) => {
    child.send({ task, options });
    const [message] = await Promise.race([
      once(child, "message"),
      exit.then(() => Promise.reject(new Error(`${kind} ended while it was measured`))),
    ]);
    if (message.error !== undefined) throw new Error(`${kind}: ${message.error}`);
    return message.answer;
  };
  return {
    warmUp: (options) => ask("warmUp", options),
    warmUpAlone: () => ask("warmUpAlone"),
    fresh: (options) => ask("fresh", options),
    open: (options) => ask("open", options),
    fill: (options) => ask("fill", options),
    see: (options) => ask("see", options),
    replays: (options) => ask("replays", options),
    async close() {
      if (child.connected) child.disconnect();
      await exit;
    },
  };
}
