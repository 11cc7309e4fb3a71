import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Binding, Latchkey, PolicyInput, RoutePolicy, StatusOptions } from "../../src/index.ts";

/** What a handler sees of its request, read in the framework's own way. */
export interface Visit {
  readonly method: string;
  readonly path: string;
  header(name: string): string | undefined;
  /** The parsed body where the framework parses its type, else the bytes. */
  body(): Promise<unknown>;
}

/** A handler that every framework can run; throwing is a way to end, too. */
export type Handler = (visit: Visit) => Reply | Promise<Reply>;

export type Fields = readonly (readonly [name: string, value: string])[];
export type Piece = string | Uint8Array;

interface Head {
  readonly status: number;
  readonly fields: Fields;
}

/** What a handler answers, as data: each framework gives it in its own idiom. */
export type Reply =
  | (Head & { readonly kind: "json"; readonly value: unknown })
  | (Head & { readonly kind: "text"; readonly text: string })
  | (Head & { readonly kind: "bytes"; readonly bytes: Uint8Array })
  /** Nothing but a head; with 200 it is what `res.end()` alone gives. */
  | (Head & { readonly kind: "empty" })
  /** Written piece by piece, then ended. */
  | (Head & { readonly kind: "pieces"; readonly pieces: readonly Piece[] })
  /** A stream: a Node one where the framework is made for Node, else a web one. */
  | (Head & { readonly kind: "stream"; readonly source: () => AsyncIterable<Piece> })
  /** The framework's own HTTP error, thrown or passed on the way that its users do. */
  | (Head & { readonly kind: "fail"; readonly message: string })
  /** Two answers to one request: a bug in a handler that must not become ours. */
  | { readonly kind: "twice"; readonly first: Reply; readonly second: Reply };

export const json = (status: number, value: unknown, fields: Fields = []): Reply => ({
  kind: "json",
  status,
  fields,
  value,
});
export const text = (status: number, text: string, fields: Fields = []): Reply => ({
  kind: "text",
  status,
  fields,
  text,
});
export const bytes = (bytes: Uint8Array, fields: Fields = []): Reply => ({
  kind: "bytes",
  status: 200,
  fields,
  bytes,
});
export const empty = (status: number): Reply => ({ kind: "empty", status, fields: [] });
export const pieces = (pieces: readonly Piece[], fields: Fields = []): Reply => ({
  kind: "pieces",
  status: 200,
  fields,
  pieces,
});
export const stream = (source: () => AsyncIterable<Piece>, fields: Fields = []): Reply => ({
  kind: "stream",
  status: 200,
  fields,
  source,
});
export const fail = (status: number, message: string): Reply => ({
  kind: "fail",
  status,
  fields: [],
  message,
});
export const twice = (first: Reply, second: Reply): Reply => ({ kind: "twice", first, second });

/** The little application that every framework builds out of the same handlers. */
export interface Application {
  readonly latchkey: Latchkey;
  readonly policy: PolicyInput & Pick<RoutePolicy<never>, "fingerprint">;
  /** The route's own tenant, told from a header that is read from the framework's own request. */
  readonly routeTenant:
    | ((header: (name: string) => string | undefined) => string | undefined | Promise<string | undefined>)
    | undefined;
  /** What the route ties keys to, told in the same way. */
  readonly routeBinding: ((header: (name: string) => string | undefined) => Binding) | undefined;
  readonly routes: Readonly<Record<string, Handler>>;
  readonly mount: Mount;
  /** Whether bodies are parsed; if not, handlers read bytes. */
  readonly parse: boolean;
}

/** Latchkey on each route, on the whole application, on both, or nowhere. */
export type Mount = "route" | "application" | "both" | "nowhere";

/** Which adapter it is; exemptions are given by it, or by `parserFirst`. */
export type Kind = "fetch" | "node" | "express" | "fastify" | "hono" | "koa" | "gateway";

export interface Framework {
  readonly name: string;
  readonly kind: Kind;
  /** The body parser runs before Latchkey and leaves it only the parsed value. */
  readonly parserFirst: boolean;
  start(application: Application): Promise<Server>;
}

/** What the application says about its callers, asked of the framework's own request. */
export function callersOf<Native>(
  { routeTenant, routeBinding }: Application,
  header: (native: Native, name: string) => string | undefined,
): StatusOptions<Native> {
  const of = (native: Native) => (name: string) => header(native, name);
  return {
    ...(routeTenant === undefined ? {} : { tenant: (native: Native) => routeTenant(of(native)) }),
    ...(routeBinding === undefined ? {} : { binding: (native: Native) => routeBinding(of(native)) }),
  };
}

export const methods = ["GET", "POST", "PATCH", "PUT", "DELETE"] as const;

/** What every application answers to an error that nobody else has answered. */
export function errorBody(error: unknown): { status: number; body: { error: string } } {
  const { status, statusCode, message } = error as { status?: number; statusCode?: number; message?: string };
  return { status: status ?? statusCode ?? 500, body: { error: message ?? String(error) } };
}

export async function listening(server: Server): Promise<Server> {
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  return server;
}

export function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}
