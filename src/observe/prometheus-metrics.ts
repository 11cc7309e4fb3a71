import type { IncomingMessage, ServerResponse } from "node:http";
import { ConfigError } from "../core/errors.ts";
import { bearerToken, sameToken } from "../http/token.ts";
import type { Latchkey } from "../latchkey.ts";
import { exposition, expositionType } from "./exposition.ts";
import { Meters } from "./meters.ts";
import type { MetricsOptions } from "./options.ts";

export interface PrometheusOptions extends MetricsOptions {
  /** What a scraper has to send as `Authorization: Bearer …`. Left out, whoever reaches the handler may read. */
  readonly token?: string;
}

export interface PrometheusMetrics {
  /** Everything that is measured, in the text format 0.0.4. */
  text(): Promise<string>;
  /** What the text has to be served as. */
  readonly contentType: string;
  /** Answers a scraper, on any path that it is mounted on. */
  handler(req: IncomingMessage, res: ServerResponse): void;
  /** Stops measuring. */
  close(): void;
}

/**
 * Measures from now on, for Prometheus to scrape.
 *
 * @example
 * ```ts
 * const metrics = prometheusMetrics(latchkey);
 * app.get("/metrics", metrics.handler);
 * ```
 */
export function prometheusMetrics<Tx>(
  latchkey: Latchkey<Tx>,
  options: PrometheusOptions = {},
): PrometheusMetrics {
  const { token } = options;
  assertToken(token);
  const meters = new Meters(latchkey as Latchkey, options);
  const text = async () => exposition(await meters.read());

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (req.method !== "GET" && req.method !== "HEAD") {
      res.writeHead(405, { allow: "GET, HEAD" }).end();
    } else if (token !== undefined && !sameToken(token, bearerToken(req.headers.authorization) ?? "")) {
      res.writeHead(401, { "www-authenticate": "Bearer" }).end();
    } else {
      const body = await text();
      res.writeHead(200, { "content-type": expositionType, "cache-control": "no-store" });
      res.end(req.method === "HEAD" ? undefined : body);
    }
  }

  return {
    text,
    contentType: expositionType,
    handler: (req, res) => void answer(req, res).catch((error) => res.destroy(error)),
    close: () => meters.close(),
  };
}

function assertToken(token: unknown): void {
  // An empty token would be given by everybody who gives none.
  if (token === undefined || (typeof token === "string" && /^[!-~]+$/.test(token))) return;
  throw new ConfigError(
    "token must be visible ASCII characters without spaces, such as 32 random bytes in hex",
  );
}
