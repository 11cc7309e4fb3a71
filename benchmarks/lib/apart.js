import { once } from "node:events";
import { startChild } from "./child.js";

/**
 * @typedef {"pool" | "preparedPool" | "latchkey" | "latchkeyPlain" | "latchkeyCached" | "nodeIdempotency"
 *   | "nodeIdempotencyLogged" | "nodeIdempotencyCore"} Kind
 */
/** @typedef {import("./load.js").ClosedSample} ClosedSample */
/** @typedef {import("./load.js").OpenSample} OpenSample */

/**
 * @typedef {object} Tasks
 * @property {() => Promise<void>} warmUp with a crowd
 * @property {() => Promise<void>} warmUpAlone with lone callers
 * @property {(options: { callers: number }) => Promise<ClosedSample>} fresh keys that nobody has sent
 * @property {(options: { rate: number, handlerMs: number }) => Promise<OpenSample>} open
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
export async function contendersApart(url, kinds) {
  const contenders = /** @type {Record<Name, Apart>} */ ({});
  for (const name of /** @type {Name[]} */ (Object.keys(kinds))) {
    contenders[name] = await contenderApart(kinds[name], url);
  }
  return contenders;
}

/**
 * @param {Kind} kind
 * @param {string} url
 * @returns {Promise<Apart>}
 */
async function contenderApart(kind, url) {
  const { child, exit } = await startChild("postgres-contender.js", [kind, url]);
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
    warmUp: () => ask("warmUp"),
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
