// One part of a way through a gateway, in a process of its own: `gateway-server.js bare http://127.0.0.1:8080`. It tells
// its parent the port, and whenever it is asked, how much processor time and memory it has used.
import { once } from "node:events";
import { createServer } from "node:http";
import { Pool } from "undici";
import { chargeBytes } from "../lib/payload.js";

/** @typedef {import("../lib/gateway.js").Part} Part */

const [part, upstream = "", store = "memory:"] =
  /** @type {[Part, string | undefined, string | undefined]} */ (process.argv.slice(2));

/** @type {Record<Part, () => Promise<number>>} */
const parts = {
  upstream: () => listening(createServer(answer)),
  bare: () => listening(createServer(bareProxy(new Pool(upstream, { connections: 256 })))),
  pass: () => gateway({ unmatched: "pass", workers: false }),
  // A short retention keeps the memory of a long run flat; the reaper is part of what is measured.
  protect: () => gateway({ defaults: { retentionMs: 2_000 }, workers: { reaper: { intervalMs: 1_000 } } }),
};
process.send?.({ port: await parts[part]() });
process.on("message", () => process.send?.({ cpu: process.cpuUsage(), memory: process.memoryUsage() }));
// Whoever started this process is gone: so is the reason to run.
process.on("disconnect", () => process.exit());

/**
 * Reads what comes, and answers with as many bytes as the path says, or with a charge.
 *
 * @param {import("node:http").IncomingMessage} req
 * @param {import("node:http").ServerResponse} res
 */
function answer(req, res) {
  req.resume();
  req.on("end", () => {
    const bytes = Number(/^\/bytes\/(\d+)$/.exec(req.url ?? "")?.[1] ?? 0);
    if (bytes === 0) {
      res.writeHead(201, { "content-type": "application/json", "content-length": chargeBytes.byteLength });
      res.end(chargeBytes);
      return;
    }
    res.writeHead(200, { "content-type": "application/octet-stream", "content-length": bytes });
    const piece = Buffer.alloc(64 * 1024, "latchkey");
    let left = bytes;
    const write = () => {
      while (left > 0) {
        const chunk = left >= piece.byteLength ? piece : piece.subarray(0, left);
        left -= chunk.byteLength;
        if (left === 0) res.end(chunk);
        else if (!res.write(chunk)) return void res.once("drain", write);
      }
    };
    write();
  });
}

/**
 * The least that passes requests on: no rules about headers, no protection, and no answer when something goes wrong.
 *
 * @param {Pool} pool
 * @returns {import("node:http").RequestListener}
 */
function bareProxy(pool) {
  return (req, res) => {
    const { host, connection, "transfer-encoding": encoding, ...headers } = req.headers;
    const hasBody = encoding !== undefined || Number(headers["content-length"] ?? 0) > 0;
    /** @type {() => void} */
    let goOn;
    pool.dispatch(
      {
        path: req.url ?? "/",
        method: /** @type {import("undici").Dispatcher.HttpMethod} */ (req.method),
        headers,
        body: hasBody ? req : null,
      },
      {
        onConnect() {},
        onHeaders(status, raw, resume) {
          goOn = resume;
          res.writeHead(
            status,
            raw.map((text) => text.toString("latin1")),
          );
          return true;
        },
        onData(chunk) {
          if (res.write(chunk)) return true;
          res.once("drain", goOn);
          return false;
        },
        onComplete: () => void res.end(),
        onError: () => void res.destroy(),
      },
    );
  };
}

/**
 * The gateway itself, as it is built: it is a program, and no part of what the package exports.
 *
 * @param {object} config
 */
async function gateway(config) {
  const load = (/** @type {string} */ file) =>
    import(new URL(`../../dist/gateway/${file}`, import.meta.url).href);
  const [{ startGateway }, { checkText }] = await Promise.all([
    load("gateway.js"),
    load("config/settings.js"),
  ]);
  const listen = { host: "127.0.0.1", port: await freePort() };
  const text = JSON.stringify({ upstream, store, tenant: "single", migrate: true, listen, ...config });
  const { settings, errors } = checkText({ text, file: undefined });
  if (settings === undefined) throw new Error(JSON.stringify(errors));
  const logger = { debug() {}, info() {}, warn() {}, error() {} };
  return (await startGateway(settings, { logger })).port;
}

async function freePort() {
  const server = createServer();
  const port = await listening(server);
  server.close();
  await once(server, "close");
  return port;
}

/** @param {import("node:http").Server} server */
async function listening(server) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the server has no port");
  return address.port;
}
