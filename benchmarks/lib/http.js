import { randomUUID } from "node:crypto";
import { once } from "node:events";
import autocannon from "autocannon";
import { startChild } from "./child.js";
import { callerHeaders } from "./guards.js";
import { order } from "./payload.js";
import { seconds as secondsOfTurn } from "./settings.js";

/** @typedef {"express" | "fastify" | "hono"} Framework */
/**
 * @typedef {"bare" | "latchkey" | "latchkey-postgres" | "latchkey-postgres-plain" | "plain-statements"
 *   | "express-idempotency" | "node-idempotency" | import("./guards.js").Guarded} Protection
 */
/** @typedef {"fresh" | "replay"} Keys */
/** @typedef {{ rate: number, p50: number, p99: number, cpu: number }} HttpSample per second, ms, ms, µs per request */

/** A server in a new process has compiled nothing yet, and the more code there is, the longer it takes. */
const warmUpTurns = 3;
const warmUpSecondsMax = 3;
const settleSeconds = 0.2;
const body = JSON.stringify(order);

/**
 * An application in a process of its own, which is started for the first round and kept until it is stopped: what is asked is
 * what a server costs that has been running for a while.
 *
 * @param {object} options
 * @param {Framework} options.framework
 * @param {Protection} options.protection
 * @param {Keys} options.keys
 * @param {number} options.connections
 * @param {string} [options.databaseUrl]
 * @param {number} [options.seconds] of one turn
 * @param {number} [options.warmUpSeconds] before the first turn
 * @param {boolean} [options.isAwake] the client does not sleep while it waits; only where no database needs the processor
 */
export function httpContender(options) {
  const { framework, protection, keys, connections, databaseUrl } = options;
  const { seconds = secondsOfTurn, isAwake = false } = options;
  const { warmUpSeconds = Math.min(warmUpSecondsMax, seconds * warmUpTurns) } = options;
  /** @type {Promise<Awaited<ReturnType<typeof startChild<{ port: number }>>>> | undefined} */
  let started;
  const args = [framework, protection, keys, ...(databaseUrl ? [databaseUrl] : [])];

  /** @returns {Promise<HttpSample>} */
  async function measure() {
    const isNew = started === undefined;
    started ??= startChild("http-server.js", args);
    const {
      child: server,
      message: { port },
    } = await started;
    const url = `http://127.0.0.1:${port}/charges`;
    // Whoever replays has been answered before.
    if (keys === "replay") await (await fetch(url, { method: "POST", body, headers: headers(keys) })).text();
    const duration = isNew ? warmUpSeconds : Math.min(settleSeconds, seconds * warmUpTurns);
    await shoot(url, { keys, connections, duration, isAwake });
    const before = await cpuOf(server);
    const result = await shoot(url, { keys, connections, duration: seconds, isAwake });
    const used = (await cpuOf(server)) - before;
    if (result.non2xx > 0 || result.errors > 0) {
      throw new Error(
        `${framework} ${protection} ${keys}: ${result.non2xx} answers not 2xx, ${result.errors} errors`,
      );
    }
    return {
      // To the millisecond: its own duration is rounded to ten of them, which is two percent of a short turn.
      rate: (1000 * result.requests.total) / (result.finish.getTime() - result.start.getTime()),
      p50: result.latency.p50,
      p99: result.latency.p99,
      cpu: used / result.requests.total,
    };
  }

  async function stop() {
    if (started === undefined) return;
    const { child, exit } = await started;
    child.kill();
    await exit;
  }
  return { measure, stop };
}

/** @param {import("node:child_process").ChildProcess} server */
async function cpuOf(server) {
  server.send("cpu");
  const [{ cpu }] = await once(server, "message");
  return cpu.user + cpu.system;
}

/**
 * The client does the same work in every variant: it makes a key, and a bare server ignores it. Keys are random, as those of
 * most clients are: ones that only count up spare a database the work of finding their place.
 *
 * @param {string} url
 * @param {{ keys: Keys, connections: number, duration: number, isAwake: boolean }} options
 */
async function shoot(url, { keys, connections, duration, isAwake }) {
  const sleepAgain = isAwake ? stayAwake() : undefined;
  try {
    return await autocannon({
      url,
      connections,
      duration,
      sampleInt: 100, // Else a test of half a second has no sample at all.
      requests: [
        {
          method: "POST",
          body,
          setupRequest: (request) => ({ ...request, headers: headers(keys) }),
        },
      ],
    });
  } finally {
    sleepAgain?.();
  }
}

/**
 * Keeps this process from going to sleep until the returned function is called. A client that waits for a slow server is
 * asleep, and the server's write has to wake it, which the system puts on the server's bill: 3 to 8 µs were measured. A
 * fast server has a client that is always busy and is never billed for it. So a server that takes twice as long would look as
 * if it took more, and by what is not its doing. An awake client costs every contender the same.
 */
function stayAwake() {
  let isOver = false;
  const turn = () => {
    if (!isOver) setImmediate(turn);
  };
  turn();
  return () => {
    isOver = true;
  };
}

/** @param {Keys} keys */
function headers(keys) {
  const id = randomUUID();
  const key = keys === "replay" ? "one-and-the-same-key-for-everybody" : id;
  return { "content-type": "application/json", "idempotency-key": key, "x-id": id, ...callerHeaders };
}
