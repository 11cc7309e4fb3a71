import { type OwnServer, type OwnServerOptions, ownServer } from "../http/own-server.ts";
import type { Latchkey } from "../latchkey.ts";
import { type AdminOptions, adminHandler } from "./admin-handler.ts";

export interface AdminServerOptions extends AdminOptions, OwnServerOptions {}

/** `url` is where the console is, and what the paths of the API are relative to. */
export type AdminServer = OwnServer;

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
  const { port, host, ...rest } = options;
  const handler = adminHandler(latchkey, rest);
  const server = await ownServer((req, res) => void handler(req, res), { port, host }, handler.close);
  return { ...server, url: server.url + (options.path ?? "") };
}
