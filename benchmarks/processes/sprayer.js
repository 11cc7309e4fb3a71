// A tenant that makes keys as fast as it is told to: `sprayer.js <url>`. Its parent tells it for how long and how fast;
// it answers with how many were let in, how many were not, and how long it took.
//
// Outside of a benchmark it would be somebody else's machine. Here it shares the processors with those whom it is to
// disturb, so it is as light as can be (sockets and texts, no HTTP client) and goes behind everybody else (`nice`). Its
// requests are spread over time: a load generator that sends what is due in a second at the second's first moment makes
// a queue of all of them, and what is measured is that queue.
import { connect } from "node:net";
import { constants, setPriority } from "node:os";
import { order } from "../lib/payload.js";

const [url] = process.argv.slice(2);
if (url === undefined) throw new Error("sprayer.js needs a URL");
const { hostname, port, host, pathname } = new URL(url);

const connections = 32;
const tickMs = 1;
const run = Date.now().toString(36);
const body = JSON.stringify(order);
const head =
  `POST ${pathname} HTTP/1.1\r\nhost: ${host}\r\ncontent-type: application/json\r\n` +
  `content-length: ${Buffer.byteLength(body)}\r\nx-tenant: sprayer\r\nidempotency-key: sprayed-${run}-`;
const tail = `\r\n\r\n${body}`;

let keys = 0;
/** @type {import("node:net").Socket[]} */
const idle = [];
/** @type {Record<string, number>} */
let statuses = {};
let answered = 0;

setPriority(constants.priority.PRIORITY_LOW);
process.on("disconnect", () => process.exit());
process.on("message", async (/** @type {{ rate: number, requests: number }} */ { rate, requests }) => {
  while (idle.length < connections) idle.push(await opened());
  statuses = {};
  answered = 0;
  const from = performance.now();
  let sent = 0;
  const timer = setInterval(() => {
    const now = performance.now();
    const due = Math.min(requests, Math.floor(((now - from) / 1000) * rate));
    // What finds no connection free is late, and is sent as soon as there is one.
    for (let socket = idle.pop(); socket !== undefined; socket = idle.pop()) {
      if (sent >= due) {
        idle.push(socket);
        break;
      }
      sent += 1;
      keys += 1;
      socket.write(head + keys + tail);
    }
    if (answered < requests) return;
    clearInterval(timer);
    process.send?.({ statuses, seconds: (now - from) / 1000 });
  }, tickMs);
});
process.send?.({ ready: true });

/** A connection that is idle again after each answer. */
async function opened() {
  const socket = connect(Number(port), hostname);
  await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
  socket.setNoDelay(true);
  let received = "";
  socket.on("data", (chunk) => {
    received += chunk.toString("latin1");
    const headEnd = received.indexOf("\r\n\r\n");
    if (headEnd === -1) return;
    const [, length = "0"] = /content-length: (\d+)/i.exec(received) ?? [];
    if (received.length < headEnd + 4 + Number(length)) return;
    const status = received.slice(9, 12);
    statuses[status] = (statuses[status] ?? 0) + 1;
    received = "";
    answered += 1;
    idle.push(socket);
  });
  return socket;
}
