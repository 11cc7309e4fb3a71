// One of those who are measured on Postgres, in a process of its own, as it would be in earnest: where several share one, each
// pays for what the others have made of the compiled code.
import { latchkeyOn, plainPool, withCache, withoutGroupCommit } from "../lib/contenders.js";
import { floorOn } from "../lib/floor.js";
import { closedLoop, forEachOf, openLoop, warmUp, warmUpAlone } from "../lib/load.js";
import { nodeIdempotencyCore, nodeIdempotencyStatements } from "../lib/node-idempotency.js";
import { doAsAsked } from "./tasks.js";

/** @typedef {import("../lib/contenders.js").Contender} Contender */
/** @typedef {import("../lib/apart.js").Kind} Kind */
/** @typedef {import("../lib/apart.js").Tasks} Tasks */

/** @type {Record<Kind, (url: string) => Promise<Contender>>} */
const makers = {
  pool: (url) => plainPool(url),
  preparedPool: (url) => plainPool(url, { isPrepared: true }),
  floor: floorOn,
  latchkey: (url) => latchkeyOn(url),
  latchkeyPlain: (url) => latchkeyOn(url, withoutGroupCommit),
  latchkeyCached: (url) => latchkeyOn(url, withCache.store, withCache.latchkey),
  nodeIdempotency: (url) => nodeIdempotencyStatements(url, { isLogged: false }),
  nodeIdempotencyLogged: (url) => nodeIdempotencyStatements(url, { isLogged: true }),
  nodeIdempotencyCore: (url) => nodeIdempotencyCore(url),
};

const [kind, url = ""] = process.argv.slice(2);
const make = makers[/** @type {Kind} */ (kind)];
const contender = await make(url);

/** @type {Tasks} */
const tasks = {
  warmUp: ({ callers }) => warmUp([contender], { callers: [callers] }),
  warmUpAlone: () => warmUpAlone(() => make(url)),
  fresh: ({ callers }) => closedLoop({ callers, operation: () => contender.operation() }),
  open: (turn) => openLoop({ ...turn, operation: (handler) => contender.operation(undefined, handler) }),
  fill: ({ keys }) => forEachOf(keys, (key) => contender.operation(key)),
  see: ({ keys }) => forEachOf(keys, (key) => contender.replay(key)),
  replays: ({ callers, keys }) =>
    closedLoop({
      callers,
      operation: () => contender.replay(keys[Math.floor(Math.random() * keys.length)] ?? ""),
    }),
};

doAsAsked(tasks, () => contender.close());
