import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { bytesOf, objectIn, sendJson } from "./json.ts";
import { Network } from "./network.ts";
import type { Payments } from "./payments.ts";
import { isScenarioId } from "./scenarios.ts";
import type { PlaygroundView } from "./trace.ts";

export interface PlaygroundServerOptions {
  readonly payments: Payments;
  readonly network: Network;
  view(): PlaygroundView;
  reset(): Promise<void>;
  /** Below {@link consolePath}. */
  readonly admin: (req: IncomingMessage, res: ServerResponse) => Promise<void>;
  readonly page: (req: IncomingMessage, res: ServerResponse) => void;
}

export const consolePath = "/console";

const amountMax = 1_000_000; // Ten thousand in cents: nobody has to see what larger numbers do to the layout.

/** What the browser speaks with: the page, its own small API, the way to the payments API, and the console. */
export function playgroundServer(options: PlaygroundServerOptions): Server {
  return createServer((req, res) => {
    // On a connection that is used again, browsers repeat a request by themselves if it breaks. Here the page's own client
    // is to be seen at work.
    res.shouldKeepAlive = false;
    route(req, res, options).catch((error) => {
      sendJson(res, 400, { error: error instanceof Error ? error.message : String(error) });
    });
  });
}

async function route(
  req: IncomingMessage,
  res: ServerResponse,
  options: PlaygroundServerOptions,
): Promise<void> {
  const { pathname } = new URL(req.url ?? "/", "http://playground");
  const order = Network.orderOf(req);
  if (pathname === consolePath || pathname.startsWith(`${consolePath}/`)) return options.admin(req, res);
  if (req.method === "POST" && !isOwnPage(req)) {
    return sendJson(res, 403, { error: "only the playground's own page may do this" });
  }
  if (req.method === "POST" && order !== undefined) return options.network.pass(req, res, order);
  switch (`${req.method} ${pathname}`) {
    case "GET /api/stream":
      return stream(req, res, options);
    case "POST /api/payments":
      return begin(req, res, options.payments);
    case "POST /api/reset":
      await options.reset();
      return sendJson(res, 200, {});
    default:
      return options.page(req, res);
  }
}

/** Browsers say where a request comes from, so that no other page can press the buttons of this one. */
function isOwnPage(req: IncomingMessage): boolean {
  const site = req.headers["sec-fetch-site"];
  return site === undefined || site === "same-origin";
}

async function begin(req: IncomingMessage, res: ServerResponse, payments: Payments): Promise<void> {
  const { scenario, isProtected, amount } = objectIn(await bytesOf(req));
  if (!isScenarioId(scenario) || typeof isProtected !== "boolean") {
    return sendJson(res, 400, { error: "a payment needs a scenario, and whether it is protected" });
  }
  if (typeof amount !== "number" || !Number.isInteger(amount) || amount < 1 || amount > amountMax) {
    return sendJson(res, 400, { error: `amount must be a whole number of cents from 1 to ${amountMax}` });
  }
  sendJson(res, 201, payments.begin({ scenario, isProtected, amount }));
}

const waitingBytesMax = 4 * 1024 * 1024; // A page that reads nothing is cut off; it connects again and gets everything anew.

/** Server-sent events: first everything that there is, then each change. */
function stream(
  req: IncomingMessage,
  res: ServerResponse,
  { payments, view }: PlaygroundServerOptions,
): void {
  res.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
  const send = (event: string, data: unknown) => {
    res.write(`event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
    if (res.writableLength > waitingBytesMax) res.destroy();
  };
  res.write(`retry: ${reconnectMs}\n\n`);
  send("playground", view());
  const stop = payments.subscribe((change) => send("change", change));
  const alive = setInterval(() => res.write(":\n\n"), aliveMs);
  req.on("close", () => {
    stop();
    clearInterval(alive);
  });
}

const reconnectMs = 1_000;
const aliveMs = 15_000;
