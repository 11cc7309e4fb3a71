// Does a gateway's memory stay flat while 10 MB bodies pass through it in both directions? `SOAK_SECONDS` (600) says for
// how long; the slope is that of the second half, when every buffer has found its size.
import { once } from "node:events";
import { Agent, request } from "node:http";
import { answerWhenStarted, whole } from "./lib/answer.js";
import { startPart } from "./lib/gateway.js";
import { createProgress } from "./lib/progress.js";
import { numberOf } from "./lib/settings.js";

const soakSeconds = numberOf("SOAK_SECONDS", 600);
const bodyBytes = 10_000_000;
const callers = 8;
const samples = 60;
/** What resident memory may grow by in an hour: less than a garbage collector's own mood over ten minutes. */
const slopeMax = 60;

export async function run() {
  const upstream = await startPart("upstream");
  const gateway = await startPart("pass", upstream.url);
  try {
    return await soak(gateway);
  } finally {
    await gateway.stop();
    await upstream.stop();
  }
}

/**
 * @param {Awaited<ReturnType<typeof startPart>>} gateway
 * @returns {Promise<import("./lib/answer.js").Answer>}
 */
async function soak(gateway) {
  const progress = createProgress(samples);
  const agent = new Agent({ keepAlive: true, maxSockets: callers });
  let isOver = false;
  let bodies = 0;
  const load = Array.from({ length: callers }, async (_, caller) => {
    while (!isOver) {
      await (caller % 2 === 0 ? down(gateway.url, agent) : up(gateway.url, agent));
      bodies += 1;
    }
  });
  /** @type {{ seconds: number, rss: number, heap: number }[]} */
  const seen = [];
  const begun = performance.now();
  for (let sample = 1; sample <= samples; sample += 1) {
    const due = begun + (1000 * soakSeconds * sample) / samples;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, due - performance.now())));
    const { memory } = await gateway.usage();
    seen.push({
      seconds: (performance.now() - begun) / 1000,
      rss: memory.rss / 1_000_000,
      heap: (memory.heapUsed + memory.external) / 1_000_000,
    });
    progress.step(`${whole(memory.rss / 1_000_000)} MB, ${bodies} bodies`);
  }
  isOver = true;
  await Promise.all(load);
  agent.destroy();
  const half = seen.slice(seen.length / 2);
  const slope = slopeOf(half.map(({ seconds, rss }) => [seconds / 3600, rss]));
  const every = Math.ceil(seen.length / 10);
  return {
    tables: [
      {
        title: `Memory of a gateway while ${whole(bodies)} bodies of 10 MB pass through it, ${callers} at a time`,
        columns: ["after", "resident", "heap and buffers"],
        rows: seen
          .filter((_, index) => (index + 1) % every === 0)
          .map(({ seconds, rss, heap }) => [`${whole(seconds)} s`, `${whole(rss)} MB`, `${whole(heap)} MB`]),
      },
    ],
    bars: [
      {
        what: `gateway: growth of resident memory in the second half of ${whole(soakSeconds)} s of 10 MB bodies`,
        asked: `<= ${slopeMax} MB an hour`,
        measured: `${slope.toFixed(1)} MB an hour`,
        reached: slope <= slopeMax,
      },
    ],
  };
}

/**
 * @param {string} url
 * @param {Agent} agent
 */
async function down(url, agent) {
  const sent = request(`${url}/bytes/${bodyBytes}`, { agent });
  sent.end();
  const [response] = await once(sent, "response");
  let bytes = 0;
  response.on("data", (/** @type {Buffer} */ chunk) => {
    bytes += chunk.byteLength;
  });
  await once(response, "end");
  if (bytes !== bodyBytes) throw new Error(`${bytes} of ${bodyBytes} bytes came back`);
}

const piece = Buffer.alloc(100_000, "latchkey");

/**
 * @param {string} url
 * @param {Agent} agent
 */
async function up(url, agent) {
  const sent = request(`${url}/charges`, { method: "PUT", agent, headers: { "content-length": bodyBytes } });
  const answered = once(sent, "response");
  for (let bytes = 0; bytes < bodyBytes; bytes += piece.byteLength) {
    if (!sent.write(piece)) await once(sent, "drain");
  }
  sent.end();
  const [response] = await answered;
  response.resume();
  await once(response, "end");
}

/**
 * By least squares.
 *
 * @param {readonly (readonly [x: number, y: number])[]} points
 */
function slopeOf(points) {
  const mean = (/** @type {0 | 1} */ axis) =>
    points.reduce((sum, point) => sum + point[axis], 0) / points.length;
  const [x0, y0] = [mean(0), mean(1)];
  const above = points.reduce((sum, [x, y]) => sum + (x - x0) * (y - y0), 0);
  return above / points.reduce((sum, [x]) => sum + (x - x0) ** 2, 0);
}

await answerWhenStarted(import.meta.url, run);
