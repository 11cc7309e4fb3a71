import type { IncomingMessage, ServerResponse } from "node:http";
import { statusResource } from "../adapters/node.ts";
import { adminHandler, serveAdmin } from "../admin/admin.ts";
import type { Latchkey } from "../latchkey.ts";
import { type PrometheusOptions, prometheusMetrics, serveMetrics } from "../observe/prometheus.ts";
import type { GatewayConfig } from "./config/schema.ts";
import { defined } from "./policies.ts";

type Handler = (req: IncomingMessage, res: ServerResponse) => unknown;

/** What nobody but the gateway answers: its health, and what was configured to be on its own port. */
export const ownPrefix = "/-/latchkey";
const healthPath = `${ownPrefix}/health`;

/** What the gateway answers itself, on its own port or on others. */
export interface OwnPlaces {
  /** Who answers a path; undefined if upstream does. */
  handlerOf(path: string): Handler | undefined;
  /** Whether the handler wants to know who is calling. */
  isStatus(path: string): boolean;
  /** Where metrics and admin API listen, if they have ports of their own. */
  readonly urls: { readonly metrics?: string; readonly admin?: string };
  close(): Promise<void>;
}

/** Opens the ports that are configured beside the gateway's own, and says what is on that. */
export async function openOwnPlaces(
  config: GatewayConfig,
  latchkey: Latchkey,
  isServing: () => boolean,
): Promise<OwnPlaces> {
  const { metrics, admin, statusPath } = config;
  const handlers: (readonly [prefix: string, handler: Handler])[] = [];
  const closers: (() => unknown)[] = [];
  const urls: { metrics?: string; admin?: string } = {};
  const close = async () => {
    for (const end of closers) await end();
  };
  try {
    if (metrics !== undefined) {
      const { port, host, path, ...rest } = metrics;
      const options = defined(rest) as PrometheusOptions;
      if (port !== undefined) {
        const server = await serveMetrics(latchkey, { port, ...defined({ host }), ...options });
        urls.metrics = `${server.url}/metrics`;
        closers.push(() => server.close());
      } else if (path !== undefined) {
        const { handler, close: end } = prometheusMetrics(latchkey, options);
        handlers.push([path, handler]);
        closers.push(end);
      }
    }
    if (admin !== undefined) {
      const { port, host, path, operators, ...rest } = admin;
      const options = {
        ...defined(rest),
        operators: operators.map(({ name, token, readOnly }) => ({ name, token, ...defined({ readOnly }) })),
        role: "gateway",
      };
      if (port !== undefined) {
        const server = await serveAdmin(latchkey, { port, ...defined({ host }), ...options });
        urls.admin = server.url;
        closers.push(() => server.close());
      } else if (path !== undefined) {
        const handler = adminHandler(latchkey, { path, ...options });
        handlers.push([path, handler]);
        closers.push(() => handler.close());
      }
    }
  } catch (error) {
    await close();
    throw error;
  }
  const health = healthHandler(latchkey, isServing);
  const status = statusPath === undefined ? undefined : statusResource(latchkey);
  const isStatus = (path: string) => statusPath !== undefined && path.startsWith(`${statusPath}/`);
  return {
    urls,
    isStatus,
    handlerOf(path) {
      if (path === healthPath) return health;
      if (isStatus(path)) return status;
      const found = handlers.find(([prefix]) => path === prefix || path.startsWith(`${prefix}/`));
      if (found !== undefined) return found[1];
      return path === ownPrefix || path.startsWith(`${ownPrefix}/`) ? notThere : undefined;
    },
    close,
  };
}

/** Says no more than whether requests should be sent here. Does not ask upstream: its own health is its own business. */
function healthHandler(latchkey: Latchkey, isServing: () => boolean): Handler {
  return (req, res) => {
    if (req.method !== "GET" && req.method !== "HEAD") {
      res.writeHead(405, { allow: "GET, HEAD" }).end();
      return;
    }
    const { breaker, store } = latchkey.health();
    const status = !isServing() ? "draining" : breaker === "open" ? "unavailable" : "ok";
    res.writeHead(status === "ok" ? 200 : 503, {
      "content-type": "application/json",
      "cache-control": "no-store",
    });
    res.end(req.method === "HEAD" ? undefined : JSON.stringify({ status, store, breaker }));
  };
}

const notThere: Handler = (req, res) => {
  req.resume();
  res.writeHead(404, { "content-type": "text/plain" }).end("The gateway has nothing here.\n");
};
