import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import type { Logger } from "../../src/engine/logging.ts";
import { problemLine } from "../../src/gateway/config/problems.ts";
import { checkText, type GatewaySettings } from "../../src/gateway/config/settings.ts";
import { type Gateway, startGateway } from "../../src/gateway/gateway.ts";

/** What a service got. */
export interface Received {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

type Service = (received: Received, res: ServerResponse) => unknown;

/** A service on a port of its own, with a list of everything that it got. */
export async function service(handler: Service): Promise<{ readonly url: string; readonly got: Received[] }> {
  const got: Received[] = [];
  const server = createServer(async (req, res) => {
    const parts: Buffer[] = [];
    for await (const part of req) parts.push(part as Buffer);
    const { method = "", url: path = "", headers } = req;
    const received = { method, path, headers, body: Buffer.concat(parts).toString() };
    got.push(received);
    await handler(received, res);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, got };
}

/** Answers 201 with a number that tells executions apart. */
export async function countingService() {
  let count = 0;
  return service((_, res) => {
    count += 1;
    res.writeHead(201, { "content-type": "application/json" }).end(JSON.stringify({ charge: count }));
  });
}

export function json(res: ServerResponse, status: number, value: unknown): void {
  res.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}

/** The settings of a configuration that has to be good; what the tests do not care about is filled in. */
export function settingsOf(upstream: string, rest = "", env: Record<string, string> = {}): GatewaySettings {
  const has = (name: string) => new RegExp(`^${name}:`, "m").test(rest);
  const text = [
    has("upstream") ? "" : `upstream: ${upstream}`,
    has("listen") ? "" : "listen: { port: 0 }",
    has("store") ? "" : 'store: "memory:"',
    has("tenant") ? "" : "tenant: single",
    rest,
  ].join("\n");
  const { settings, errors } = checkText({ file: "gateway.yaml", text, env });
  if (settings === undefined) throw new Error(errors.map(problemLine).join("\n"));
  return settings;
}

export interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly event?: string;
}

/** A gateway that ends with its test, and what it has logged. */
export async function gateway(
  settings: GatewaySettings,
): Promise<{ readonly gateway: Gateway; readonly url: string; readonly log: LogLine[] }> {
  const log: LogLine[] = [];
  const at = (level: string) => (fields: object, message: string) =>
    void log.push({ ...fields, level, message });
  const logger: Logger = { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
  const started = await startGateway(settings, { logger });
  onTestFinished(() => started.close({ drainMs: 0 }));
  return { gateway: started, url: started.url, log };
}
