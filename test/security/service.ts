import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import express, { type Request, type Response } from "express";
import { idempotent, statusResource } from "../../src/adapters/express.ts";
import {
  createLatchkey,
  type Latchkey,
  type LatchkeyOptions,
  type PolicyInput,
  type RoutePolicy,
  type Store,
} from "../../src/index.ts";
import { type Answer, type Sending, send } from "../adapters/client.ts";

export interface ServiceOptions {
  readonly store: Store;
  readonly policy?: PolicyInput & Pick<RoutePolicy<Request>, "binding">;
  readonly latchkey?: Partial<LatchkeyOptions>;
  /** What a caller's request does; left out, it is paid. */
  readonly handler?: (caller: Caller, res: Response) => unknown;
}

export interface Caller {
  readonly tenant: string;
  readonly key: string;
  readonly req: Request;
}

/** Whoever calls says so in headers, as if an authenticating proxy had written them. */
export interface As {
  readonly tenant: string;
  readonly session?: string;
}

/** A payments API over real HTTP, and a list of what was paid. */
export interface Service {
  readonly latchkey: Latchkey;
  readonly url: string;
  /** Tenant and key of each execution, in order. */
  readonly paid: readonly string[];
  pay(as: As, key: string, more?: Sending): Promise<Answer>;
  status(as: As, key: string, query?: string): Promise<Answer>;
  close(): Promise<void>;
}

export async function startService(options: ServiceOptions): Promise<Service> {
  const latchkey = createLatchkey({
    tenant: (request) => request.header("x-tenant"),
    statusPath: "/idempotency",
    ...options.latchkey,
    store: options.store,
  });
  const paid: string[] = [];
  const app = express();
  app.disable("x-powered-by");
  const binding = options.policy?.binding;
  app.get("/idempotency/:key", statusResource(latchkey, binding === undefined ? {} : { binding }));
  app.post(/^\/pay/, idempotent(latchkey, options.policy), express.json(), async (req, res) => {
    const tenant = String(req.get("x-tenant"));
    const key = String(req.get("idempotency-key"));
    paid.push(`${tenant} ${key}`);
    if (options.handler === undefined) res.status(201).json({ paidBy: tenant, nth: paid.length });
    else await options.handler({ tenant, key, req }, res);
  });
  const server: Server = await new Promise((resolve) => {
    const listening = app.listen(0, "127.0.0.1", () => resolve(listening));
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const headersOf = ({ tenant, session }: As) => ({
    "x-tenant": tenant,
    ...(session === undefined ? {} : { "x-session": session }),
  });
  return {
    latchkey,
    url,
    paid,
    pay: (as, key, more = {}) =>
      send(url, {
        path: "/pay",
        key,
        json: { amount: 10 },
        ...more,
        headers: { ...headersOf(as), ...more.headers },
      }),
    status: (as, key, query = "") =>
      send(url, {
        method: "GET",
        path: `/idempotency/${encodeURIComponent(key)}${query}`,
        key: null,
        headers: headersOf(as),
      }),
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await latchkey.close({ drainMs: 0 });
    },
  };
}

/** Everything that a client can see of an answer, but for the time of day. */
export function seen(answer: Answer): string {
  const fields = answer.fields.filter(([name]) => name.toLowerCase() !== "date");
  return [answer.status, ...fields.map((field) => field.join(": ")), "", answer.text].join("\n");
}

export function codeOf(answer: Answer): string | undefined {
  try {
    return (JSON.parse(answer.text) as { code?: string }).code;
  } catch {
    return undefined;
  }
}
