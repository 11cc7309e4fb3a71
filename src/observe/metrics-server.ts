import type { IncomingMessage, ServerResponse } from "node:http";
import { type OwnServer, type OwnServerOptions, ownServer } from "../http/own-server.ts";
import type { Health, Latchkey } from "../latchkey.ts";
import { type PrometheusOptions, prometheusMetrics } from "./prometheus-metrics.ts";

export interface MetricsServerOptions extends PrometheusOptions, OwnServerOptions {}

export type MetricsServer = OwnServer;

/**
 * A server of its own for processes that have none, such as workers: `GET /metrics` for Prometheus, `GET /healthz` for
 * a readiness probe, which is answered 503 while the breaker around the store is open.
 *
 * @example
 * ```ts
 * const server = await serveMetrics(latchkey, { port: 9464, host: "0.0.0.0", token: process.env.METRICS_TOKEN });
 * ```
 */
export async function serveMetrics<Tx>(
  latchkey: Latchkey<Tx>,
  options: MetricsServerOptions,
): Promise<MetricsServer> {
  const { port, host, ...rest } = options;
  const metrics = prometheusMetrics(latchkey, rest);
  const answer = (req: IncomingMessage, res: ServerResponse) => {
    const path = req.url?.split("?", 1)[0];
    if (path === "/metrics") metrics.handler(req, res);
    else if (path === "/healthz") answerHealth(req, res, latchkey.health());
    else res.writeHead(404).end();
  };
  return ownServer(answer, { port, host }, () => metrics.close());
}

/** Says no more than whether requests can be served: whoever may ask this need not be allowed to read the metrics. */
function answerHealth(req: IncomingMessage, res: ServerResponse, { breaker, store }: Health): void {
  if (req.method !== "GET" && req.method !== "HEAD") {
    res.writeHead(405, { allow: "GET, HEAD" }).end();
    return;
  }
  const isOpen = breaker === "open";
  res.writeHead(isOpen ? 503 : 200, { "content-type": "application/json", "cache-control": "no-store" });
  const body = JSON.stringify({ status: isOpen ? "unavailable" : "ok", store, breaker });
  res.end(req.method === "HEAD" ? undefined : body);
}
