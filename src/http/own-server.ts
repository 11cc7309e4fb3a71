import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { ConfigError } from "../core/errors.ts";

/** A server that answers operators and their tools, beside the one that answers clients. */
export interface OwnServer {
  readonly url: string;
  readonly port: number;
  close(): Promise<void>;
}

export interface OwnServerOptions {
  /** 0 for any that is free. */
  readonly port: number;
  /** Where it listens; only this machine reaches it if left out. */
  readonly host?: string | undefined;
}

/** `closing` is called once, when the server is closed or could not be started. */
export async function ownServer(
  listener: RequestListener,
  options: OwnServerOptions,
  closing: () => unknown,
): Promise<OwnServer> {
  const { port, host = "127.0.0.1" } = options;
  const server = createServer(listener);
  try {
    if (!Number.isInteger(port) || port < 0 || port > 65_535) {
      throw new ConfigError(`port is ${port} and must be a whole number from 0 to 65535`);
    }
    server.listen(port, host);
    await once(server, "listening");
  } catch (error) {
    await closing();
    throw error;
  }
  const address = server.address() as AddressInfo;
  const shownHost = address.family === "IPv6" ? `[${address.address}]` : address.address;
  return {
    url: `http://${shownHost}:${address.port}`,
    port: address.port,
    async close() {
      await closing();
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
