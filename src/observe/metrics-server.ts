import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { ConfigError } from "../core/errors.ts";
import type { Health, Latchkey } from "../latchkey.ts";
import { type PrometheusOptions, prometheusMetrics } from "./prometheus-metrics.ts";

export interface MetricsServerOptions extends PrometheusOptions {
  /** 0 for any that is free. */
  readonly port: number;
  /** Where it listens; only this machine reaches it if left out. */
  readonly host?: string;
}

export interface MetricsServer {
  readonly url: string;
  readonly port: number;
  close(): Promise<void>;
}

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
  const { port, host = "127.0.0.1", ...rest } = options;
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new ConfigError(`port is ${port} and must be a whole number from 0 to 65535`);
  }
  const metrics = prometheusMetrics(latchkey, rest);
  const server = createServer((req, res) => {
    const path = req.url?.split("?", 1)[0];
    if (path === "/metrics") metrics.handler(req, res);
    else if (path === "/healthz") answerHealth(req, res, latchkey.health());
    else res.writeHead(404).end();
  });
  server.listen(port, host);
  try {
    await once(server, "listening");
  } catch (error) {
    metrics.close();
    throw error;
  }
  const address = server.address() as AddressInfo;
  const shownHost = address.family === "IPv6" ? `[${address.address}]` : address.address;
  return {
    url: `http://${shownHost}:${address.port}`,
    port: address.port,
    async close() {
      metrics.close();
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
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
