import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { ConfigError } from "../core/errors.ts";
import type { Latchkey } from "../latchkey.ts";
import { type AdminOptions, adminHandler } from "./admin-handler.ts";

export interface AdminServerOptions extends AdminOptions {
  /** 0 for any that is free. */
  readonly port: number;
  /** Where it listens; only this machine reaches it if left out. */
  readonly host?: string | undefined;
}

export interface AdminServer {
  /** Where the console is, and what the paths of the API are relative to. */
  readonly url: string;
  readonly port: number;
  close(): Promise<void>;
}

/**
 * The admin API and the console on a port of their own.
 *
 * @example
 * ```ts
 * const admin = await serveAdmin(latchkey, { port: 9465, operators: [{ name: "ada", token: process.env.ADA_TOKEN }] });
 * ```
 */
export async function serveAdmin<Tx>(
  latchkey: Latchkey<Tx>,
  options: AdminServerOptions,
): Promise<AdminServer> {
  const { port, host = "127.0.0.1", ...rest } = options;
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new ConfigError(`port is ${port} and must be a whole number from 0 to 65535`);
  }
  const handler = adminHandler(latchkey, rest);
  const server = createServer((req, res) => void handler(req, res));
  server.listen(port, host);
  try {
    await once(server, "listening");
  } catch (error) {
    await handler.close();
    throw error;
  }
  const address = server.address() as AddressInfo;
  const shownHost = address.family === "IPv6" ? `[${address.address}]` : address.address;
  return {
    url: `http://${shownHost}:${address.port}${options.path ?? ""}`,
    port: address.port,
    async close() {
      await handler.close();
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
