import type { IncomingMessage, ServerResponse } from "node:http";
import { ConfigError } from "../core/errors.ts";
import { readNodeBody } from "../http/node-request.ts";
import { RequestAbortedError, splitTarget } from "../http/request.ts";
import type { Latchkey } from "../latchkey.ts";
import { SealedStore } from "../privacy/sealed-store.ts";
import { reportActivity } from "./activity/activity.ts";
import { Administration, type AdministrationOptions } from "./administration.ts";
import { LiveEvents, type LiveSource } from "./live.ts";
import { type Operator, Operators } from "./operators.ts";
import type { Responses } from "./record-view.ts";
import { Refusal, refusalOf } from "./refusal.ts";
import { readQuery } from "./requests.ts";
import { type Route, routes } from "./routes.ts";
import { StaticFiles } from "./static-files.ts";

export interface AdminOptions extends AdministrationOptions {
  /**
   * Whether answers, results of phases and payloads of messages are shown. If left out, they are `"hidden"` where the
   * store is encrypted, because whoever may look is not whoever has the keys, and `"shown"` where it is not.
   */
  readonly responses?: Responses | undefined;
  /** Who may use it; at least one. */
  readonly operators: readonly Operator[];
  /** What every path begins with, such as `/admin`, where nobody else takes it off; none if left out. */
  readonly path?: string | undefined;
  /** Whether the console is served too; it is if left out. */
  readonly console?: boolean | undefined;
  /** What this process is called among the others, unless it has said so itself; `admin` if left out. */
  readonly role?: string | undefined;
  /** Events from elsewhere that are to be shown too, such as those of a child process. */
  readonly events?: LiveSource | undefined;
}

/** Answers requests, on any path that it is mounted on. */
export interface AdminHandler {
  (req: IncomingMessage, res: ServerResponse): Promise<void>;
  /** Ends what is still being streamed, and tells the last of this process's activity. */
  close(): Promise<void>;
}

/**
 * The admin API and the console, for any server of Node's.
 *
 * @example
 * ```ts
 * app.use("/admin", adminHandler(latchkey, { operators: [{ name: "ada", token: process.env.ADA_TOKEN }] }));
 * ```
 */
export function adminHandler<Tx>(latchkey: Latchkey<Tx>, options: AdminOptions): AdminHandler {
  const { operators, path: prefix = "", console: hasConsole = true } = options;
  if (prefix !== "" && !/^(?:\/[^/?#\s]+)+$/.test(prefix)) {
    throw new ConfigError(`path is "${prefix}" and must be a path such as "/admin"`);
  }
  const { responses = latchkey.store instanceof SealedStore ? "hidden" : "shown" } = options;
  const administration = new Administration(latchkey as Latchkey, { responses });
  const known = new Operators(operators, latchkey.engine.runtime);
  const reporting = reportActivity(latchkey, { role: options.role });
  const live = new LiveEvents(latchkey as Latchkey, reporting, options.events);
  let page = hasConsole ? StaticFiles.in(pageFolder) : undefined;

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { path: whole, query } = splitTarget(req.url ?? "/");
    const path = withoutPrefix(whole);
    if (path === undefined) throw notFound;
    if (path.startsWith("/api/") || path === "/openapi.json") {
      res.setHeader("cache-control", "no-store");
      const operator = await known.asking(req);
      const route = routes.get(path);
      if (route === undefined) throw notFound;
      if (isAnsweredByMethod(req, res, route.method)) return;
      await answerRoute(route, { req, res, operator, query });
      return;
    }
    servePage(path, req, res);
  }

  async function answerRoute(
    route: Route,
    asked: { req: IncomingMessage; res: ServerResponse; operator: Operator; query: string },
  ): Promise<void> {
    const { req, res, operator, query } = asked;
    readQuery(route.query, query);
    let body: unknown;
    if (route.body !== undefined) {
      if (operator.readOnly === true) {
        throw new Refusal(403, "read-only", "You may look, and not change anything: ask somebody who may.");
      }
      body = await jsonBody(req, res);
    }
    const stream = () => live.stream(req, res);
    const view = await route.answer({ administration, operator, query, body, stream });
    if (view !== undefined) writeJson(res, 200, view);
  }

  function servePage(path: string, req: IncomingMessage, res: ServerResponse): void {
    if (!hasConsole) throw notFound;
    if (isAnsweredByMethod(req, res, "GET")) return;
    // What the page loads is named relative to it, which only works below a path that ends in a slash.
    const asked = splitTarget((req as { originalUrl?: string }).originalUrl ?? req.url ?? "/").path;
    if ((path === "" || path === "/") && !asked.endsWith("/")) {
      res.writeHead(308, { location: `${asked.slice(asked.lastIndexOf("/") + 1)}/` }).end();
      return;
    }
    page ??= StaticFiles.in(pageFolder);
    if (page === undefined) {
      throw new Refusal(
        503,
        "page-not-built",
        "The console is not built: run npm run build:pages, and load this again.",
      );
    }
    if (!page.serve(path, req, res)) throw notFound;
  }

  function withoutPrefix(path: string): string | undefined {
    if (prefix === "") return path;
    if (path === prefix) return "";
    return path.startsWith(`${prefix}/`) ? path.slice(prefix.length) : undefined;
  }

  async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    for (const [name, value] of strictHeaders) res.setHeader(name, value);
    try {
      await answer(req, res);
    } catch (error) {
      if (error instanceof RequestAbortedError || res.headersSent) res.destroy();
      else writeRefusal(res, refusalOf(error));
    }
  }

  async function close(): Promise<void> {
    live.close();
    await reporting.stop();
  }

  return Object.assign(handle, { close });
}

/** Beside this folder in the package, and where the build puts it from the sources. */
const pageFolder = new URL(
  import.meta.url.endsWith(".ts") ? "../../dist/console/" : "../console/",
  import.meta.url,
);

/** Nothing is loaded from elsewhere, framed by others or told to them, whatever a record holds. */
export const strictHeaders: readonly (readonly [name: string, value: string])[] = [
  [
    "content-security-policy",
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
      "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  ],
  ["x-content-type-options", "nosniff"],
  ["referrer-policy", "no-referrer"],
  ["cross-origin-opener-policy", "same-origin"],
  ["cross-origin-resource-policy", "same-origin"],
];

const bodyBytesMax = 1_048_576; // What an answer is at most, unless a route stores more.

const notFound = new Refusal(404, "not-found", "There is nothing here: openapi.json says what there is.");

/** Answers OPTIONS, refuses methods that the endpoint does not have, and leaves the others alone. */
function isAnsweredByMethod(req: IncomingMessage, res: ServerResponse, method: "GET" | "POST"): boolean {
  const allowed = method === "GET" ? ["GET", "HEAD", "OPTIONS"] : ["POST", "OPTIONS"];
  const allow = allowed.join(", ");
  if (req.method === "OPTIONS") {
    res.writeHead(204, { allow }).end();
    return true;
  }
  if (allowed.includes(req.method ?? "")) return false;
  throw new Refusal(405, "method-not-allowed", `Use ${allow} here.`, { headers: { allow } });
}

async function jsonBody(req: IncomingMessage, res: ServerResponse): Promise<unknown> {
  const [type = ""] = (req.headers["content-type"] ?? "").split(";", 1);
  if (type.trim().toLowerCase() !== "application/json") {
    throw new Refusal(415, "not-json", "Send the body as JSON, with Content-Type: application/json.");
  }
  const reading = await readNodeBody(req, bodyBytesMax);
  if (reading.kind === "tooLarge") {
    // Nobody waits for the rest of it.
    res.setHeader("connection", "close");
    throw new Refusal(413, "body-too-large", `Send at most ${bodyBytesMax} bytes.`);
  }
  if (reading.body.kind === "parsed") return reading.body.value;
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(reading.body.bytes));
  } catch {
    throw new Refusal(400, "bad-json", "The body is no JSON: check its quotes, commas and encoding (UTF-8).");
  }
}

function writeJson(res: ServerResponse, status: number, value: unknown, type = "application/json"): void {
  const body = Buffer.from(JSON.stringify(value));
  res.writeHead(status, { "content-type": type, "content-length": body.byteLength });
  res.end(body);
}

function writeRefusal(res: ServerResponse, refusal: Refusal): void {
  res.setHeader("cache-control", "no-store");
  for (const [name, value] of Object.entries(refusal.headers)) res.setHeader(name, value);
  writeJson(res, refusal.status, refusal.problem, "application/problem+json");
}
