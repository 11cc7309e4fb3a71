// How much of a bare framework's throughput is left behind Latchkey, with records in memory?
import { fork } from "node:child_process";
import { once } from "node:events";
import { cpus } from "node:os";
import { fileURLToPath } from "node:url";
import autocannon from "autocannon";

const rounds = Number(process.env.ROUNDS ?? 5);
const seconds = Number(process.env.SECONDS ?? 3);
const connections = 64;
/** @typedef {"express" | "fastify"} Framework */
/** @typedef {"bare" | "fresh" | "replay"} Question */

/** @type {readonly Framework[]} */
const frameworks = ["express", "fastify"];
/** @type {readonly Question[]} */
const questions = ["bare", "fresh", "replay"];

const body = JSON.stringify({
  amount: 500,
  currency: "usd",
  customer: "cus_9s6XKzkNRiz8i3",
  source: "tok_visa",
});
/** @type {Map<string, number[]>} */
const measured = new Map();
const total = frameworks.length * questions.length * rounds;
let done = 0;

for (let round = 0; round < rounds; round += 1) {
  for (const framework of frameworks) {
    // All three variants of a framework within some seconds, so that a noisy neighbour hits them alike.
    for (const question of questions) {
      const rate = await measure(framework, question);
      const name = `${framework} ${question}`;
      measured.set(name, [...(measured.get(name) ?? []), rate]);
      done += 1;
      progress(`${name}: ${Math.round(rate)} requests/s`);
    }
  }
}
report();

/**
 * @param {Framework} framework
 * @param {Question} question
 */
async function measure(framework, question) {
  const { server, url } = await start(framework, question === "bare" ? "bare" : "latchkey");
  try {
    await shoot(url, question, 1);
    const result = await shoot(url, question, seconds);
    if (result.non2xx > 0 || result.errors > 0) {
      throw new Error(
        `${framework} ${question}: ${result.non2xx} answers were not 2xx, ${result.errors} errors`,
      );
    }
    return result.requests.average;
  } finally {
    server.kill();
    await once(server, "exit");
  }
}

/**
 * @param {Framework} framework
 * @param {"bare" | "latchkey"} variant
 */
async function start(framework, variant) {
  const server = fork(fileURLToPath(new URL("./http-server.js", import.meta.url)), [framework, variant]);
  const [message] = await once(server, "message");
  return { server, url: `http://127.0.0.1:${message.port}/charges` };
}

/**
 * @param {string} url
 * @param {Question} question
 * @param {number} duration in seconds
 */
function shoot(url, question, duration) {
  // The client does the same work in every variant: it makes an id, and the bare server ignores it.
  const key = question === "replay" ? "one-and-the-same-key-for-everybody" : "[<id>]-fresh-key";
  return autocannon({
    url,
    connections,
    duration,
    method: "POST",
    body,
    idReplacement: true,
    headers: { "content-type": "application/json", "idempotency-key": key, "x-id": "[<id>]" },
  });
}

/** @param {readonly number[]} values */
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

/** @param {string} line */
function progress(line) {
  if (!process.stderr.isTTY) return;
  const width = 30;
  const filled = Math.round((done / total) * width);
  process.stderr.write(`\r[${"#".repeat(filled)}${".".repeat(width - filled)}] ${line.padEnd(50)}`);
  if (done === total) process.stderr.write("\n");
}

function report() {
  console.log(
    `Node ${process.version}, ${cpus().length} cores, ${connections} connections, ${rounds} rounds of ${seconds} s`,
  );
  console.table(
    frameworks.map((framework) => {
      const rate = (/** @type {Question} */ question) =>
        median(measured.get(`${framework} ${question}`) ?? []);
      const share = (/** @type {Question} */ question) => {
        const bare = measured.get(`${framework} bare`) ?? [];
        const ratios = (measured.get(`${framework} ${question}`) ?? []).map(
          (value, round) => value / (bare[round] ?? Number.NaN),
        );
        return `${Math.round(median(ratios) * 100)} %`;
      };
      return {
        framework,
        "bare/s": Math.round(rate("bare")),
        "fresh/s": Math.round(rate("fresh")),
        "replay/s": Math.round(rate("replay")),
        "fresh of bare": share("fresh"),
        "replay of bare": share("replay"),
      };
    }),
  );
}
