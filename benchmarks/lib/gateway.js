import { once } from "node:events";
import { Agent, request } from "node:http";
import autocannon from "autocannon";
import { startChild } from "./child.js";
import { closedLoop } from "./load.js";
import { order } from "./payload.js";
import { seconds } from "./settings.js";

/** @typedef {"upstream" | "bare" | "pass" | "protect"} Part */
/** @typedef {{ rate: number, p50: number, cpu: number }} GatewaySample per second under load, ms of one alone, µs per request */

const connections = 64;
const warmUpSeconds = 3; // A new process has compiled nothing yet.
const body = JSON.stringify(order);

/**
 * Starts one part of the way in a process of its own.
 *
 * @param {Part} part
 * @param {readonly string[]} args
 */
export async function startPart(part, ...args) {
  const { child, message, exit } = await startChild("gateway-server.js", [part, ...args]);
  const { port } = /** @type {{ port: number }} */ (message);
  return {
    url: `http://127.0.0.1:${port}`,
    /** @returns {Promise<{ cpu: NodeJS.CpuUsage, memory: NodeJS.MemoryUsage }>} */
    async usage() {
      child.send("usage");
      const [usage] = await once(child, "message");
      return usage;
    },
    async stop() {
      child.kill();
      await exit;
    },
  };
}

/**
 * Two questions about one way: how many requests get through at once, and how long one takes that is alone.
 *
 * @param {() => Promise<Awaited<ReturnType<typeof startPart>>>} start
 */
export function gatewayContender(start) {
  /** @type {ReturnType<typeof start> | undefined} */
  let started;

  /** @returns {Promise<GatewaySample>} */
  async function measure() {
    const isNew = started === undefined;
    started ??= start();
    const { url, usage } = await started;
    await shoot(url, Math.min(isNew ? warmUpSeconds : 0.2, seconds * 3));
    const before = cpuOf(await usage());
    const result = await shoot(url, seconds);
    const used = cpuOf(await usage()) - before;
    if (result.non2xx > 0 || result.errors > 0) {
      throw new Error(`${result.non2xx} answers were not 2xx, and ${result.errors} never came`);
    }
    const alone = await oneAlone(url);
    return {
      rate: result.requests.total / result.duration,
      p50: alone,
      cpu: used / result.requests.total,
    };
  }

  return {
    measure,
    async stop() {
      await (await started)?.stop();
    },
  };
}

/** @param {{ cpu: NodeJS.CpuUsage }} usage */
function cpuOf({ cpu }) {
  return cpu.user + cpu.system;
}

/**
 * @param {string} url
 * @param {number} duration
 */
function shoot(url, duration) {
  return autocannon({
    url: `${url}/charges`,
    connections,
    duration,
    sampleInt: 100, // Else a test of half a second has no sample at all.
    method: "POST",
    body,
    idReplacement: true,
    headers: { "content-type": "application/json", "idempotency-key": "[<id>]-fresh-key" },
  });
}

let keys = 0;

/**
 * The median of requests that are sent one after the other over one connection. The load generator counts in whole
 * milliseconds, which is more than what is asked for.
 *
 * @param {string} url
 */
async function oneAlone(url) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const operation = async () => {
    keys += 1;
    const sent = request(`${url}/charges`, {
      method: "POST",
      agent,
      headers: {
        "content-type": "application/json",
        "content-length": body.length,
        "idempotency-key": `alone-${process.pid}-${keys}`,
      },
    });
    sent.end(body);
    const [response] = await once(sent, "response");
    response.resume();
    await once(response, "end");
  };
  const { p50 } = await closedLoop({ callers: 1, operation });
  agent.destroy();
  return p50;
}
