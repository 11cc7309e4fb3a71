import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import express, { type Express } from "express";
import { statusResource } from "../../src/adapters/express.ts";
import type { Latchkey } from "../../src/index.ts";

export interface Node {
  readonly url: string;
  post(path: string, options?: Posting): Promise<Response>;
  close(): Promise<void>;
}

export interface Posting {
  readonly key?: string | undefined;
  readonly tenant?: string;
  readonly body?: unknown;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** One application node with its routes, listening. */
export async function startNode(latchkey: Latchkey, mount: (app: Express) => void): Promise<Node> {
  const app = express();
  app.use(express.json());
  app.get("/idempotency/:key", statusResource(latchkey));
  mount(app);
  const server: Server = await new Promise((resolve) => {
    const listening = app.listen(0, "127.0.0.1", () => resolve(listening));
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    post: (path, { key, tenant = "acme", body = { amount: 10 }, method = "POST", headers = {} } = {}) =>
      fetch(url + path, {
        method,
        headers: {
          "content-type": "application/json",
          "x-account": tenant,
          ...(key === undefined ? {} : { "idempotency-key": key }),
          ...headers,
        },
        ...(method === "GET" ? {} : { body: JSON.stringify(body) }),
      }),
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

export async function codeOf(response: Response): Promise<string> {
  return ((await response.json()) as { code: string }).code;
}
