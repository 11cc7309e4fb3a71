import { once } from "node:events";
import autocannon from "autocannon";
import { startChild } from "./child.js";
import { order } from "./payload.js";
import { seconds } from "./settings.js";

/** @typedef {"express" | "fastify" | "hono"} Framework */
/**
 * @typedef {"bare" | "latchkey" | "latchkey-postgres" | "latchkey-postgres-plain" | "plain-statements"
 *   | "express-idempotency" | "node-idempotency"} Protection
 */
/** @typedef {"fresh" | "replay"} Keys */
/** @typedef {{ rate: number, p50: number, p99: number, cpu: number }} HttpSample per second, ms, ms, µs per request */

const warmUpSeconds = 0.8; // A server in a new process has compiled nothing yet.
const body = JSON.stringify(order);

/**
 * Starts an application in a process of its own, and keeps it busy.
 *
 * @param {object} options
 * @param {Framework} options.framework
 * @param {Protection} options.protection
 * @param {Keys} options.keys
 * @param {number} options.connections
 * @param {string} [options.databaseUrl]
 * @returns {Promise<HttpSample>}
 */
export async function measureHttp({ framework, protection, keys, connections, databaseUrl }) {
  /** @type {Awaited<ReturnType<typeof startChild<{ port: number }>>>} */
  const {
    child: server,
    message: { port },
    exit,
  } = await startChild("http-server.js", [framework, protection, ...(databaseUrl ? [databaseUrl] : [])]);
  try {
    const url = `http://127.0.0.1:${port}/charges`;
    // Whoever replays has been answered before.
    if (keys === "replay") await (await fetch(url, { method: "POST", body, headers: headers(keys) })).text();
    await shoot(url, { keys, connections, duration: Math.min(warmUpSeconds, seconds) });
    const before = await cpuOf(server);
    const result = await shoot(url, { keys, connections, duration: seconds });
    const used = (await cpuOf(server)) - before;
    if (result.non2xx > 0 || result.errors > 0) {
      throw new Error(
        `${framework} ${protection} ${keys}: ${result.non2xx} answers not 2xx, ${result.errors} errors`,
      );
    }
    return {
      rate: result.requests.total / result.duration,
      p50: result.latency.p50,
      p99: result.latency.p99,
      cpu: used / result.requests.total,
    };
  } finally {
    server.kill();
    await exit;
  }
}

/** @param {import("node:child_process").ChildProcess} server */
async function cpuOf(server) {
  server.send("cpu");
  const [{ cpu }] = await once(server, "message");
  return cpu.user + cpu.system;
}

/**
 * @param {string} url
 * @param {{ keys: Keys, connections: number, duration: number }} options
 */
function shoot(url, { keys, connections, duration }) {
  return autocannon({
    url,
    connections,
    duration,
    sampleInt: 100, // Else a test of half a second has no sample at all.
    method: "POST",
    body,
    idReplacement: true,
    headers: headers(keys),
  });
}

/**
 * The client does the same work in every variant: it makes an id, and a bare server ignores it.
 *
 * @param {Keys} keys
 */
function headers(keys) {
  const key = keys === "replay" ? "one-and-the-same-key-for-everybody" : "[<id>]-fresh-key";
  return { "content-type": "application/json", "idempotency-key": key, "x-id": "[<id>]" };
}
