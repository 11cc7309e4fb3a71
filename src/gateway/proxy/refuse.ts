import type { IncomingMessage } from "node:http";
import { isForwardingHeader, isLoop } from "./forwarded.ts";
import { namedByConnection } from "./headers.ts";

export interface RequestRefusal {
  readonly status: 400 | 508;
  readonly detail: string;
}

/**
 * Why a request must not be passed on, protected or not. A route protects what its pattern matches; a request that
 * upstream may take for another one than the gateway does would pass by that protection, so it is refused rather than
 * made plain: nobody can know which of its readings upstream has. A path that ends in a key for the gateway itself to
 * read (`endsInKey`) may have anything encoded in that.
 */
export function refusalOf(
  req: IncomingMessage,
  endsInKey: (path: string) => boolean = () => false,
): RequestRefusal | undefined {
  const detail = targetRefusal(req, endsInKey) ?? fieldRefusal(req);
  if (detail !== undefined) return { status: 400, detail };
  if (!isLoop(req)) return undefined;
  return {
    status: 508,
    detail:
      "The request has come through here before. Correct the address of the service behind the gateway.",
  };
}

/** The path and query of a request whose target is not refused; an absolute one was checked to name this host. */
export function originForm(target: string): string {
  if (target.startsWith("/")) return target;
  const rest = target.replace(/^[a-z]+:\/\/[^/?#]*/i, "");
  return rest.startsWith("/") ? rest : `/${rest}`;
}

function targetRefusal(req: IncomingMessage, endsInKey: (path: string) => boolean): string | undefined {
  const target = req.url ?? "";
  if (!target.startsWith("/")) {
    const absolute = /^https?:\/\/([^/?#]*)/i.exec(target);
    if (absolute === null) return "Send a path, beginning with a slash, as the target of the request.";
    if (absolute[1]?.toLowerCase() !== req.headers.host?.toLowerCase()) {
      return "The target of the request names another host than its Host field. Name one.";
    }
  }
  const path = originForm(target);
  const mark = path.indexOf("?");
  const end = mark === -1 ? path.length : mark;
  // Almost every request ends here.
  if (plainTarget.test(path) && !looksNested(path, end)) return undefined;
  for (const [pattern, detail] of targetRules) if (pattern.test(path)) return detail;
  const alone = path.slice(0, end);
  const read = endsInKey(alone) ? alone.replaceAll(/%[0-9a-f]{2}/gi, "_") : alone;
  for (const [pattern, detail] of pathRules) if (pattern.test(read)) return detail;
  return undefined;
}

/** Nothing but letters, digits, dashes and slashes before the query, and nothing odd in it. */
const plainTarget = /^\/[\w/-]*(?:\?[\w&=.,:;+@*~!$'()/?%-]*)?$/;

function looksNested(path: string, end: number): boolean {
  const at = path.indexOf("//");
  return at !== -1 && at < end;
}

const targetRules: readonly (readonly [RegExp, string])[] = [
  [/#/, "The target has a fragment, which is never sent. Leave out the # and what follows it."],
  [/[^!-~]/, "The target has a space, a control character or a byte beyond ASCII. Percent-encode it."],
  [/\\/, "The target has a backslash, which some servers read as a slash. Percent-encode it in the query."],
];

const pathRules: readonly (readonly [RegExp, string])[] = [
  [/\/\//, "The path has two slashes in a row, which some servers read as one. Send one."],
  [/%(?![0-9a-f]{2})/i, "The path has a percent sign that encodes nothing. Send %25 for the sign itself."],
  [/%(?:[01][0-9a-f]|7f)/i, "The path has an encoded control character. Leave it out."],
  [
    // Also written longer than UTF-8 has it, which some decoders take.
    /%(?:25)*(?:2f|5c)|%(?:25)*(?:c[01]%(?:25)*[89ab]|e0%(?:25)*[89]|f0%(?:25)*8)/i,
    "The path has an encoded slash or backslash, which some servers read as a plain one. Send it in the query.",
  ],
  [
    // Some servers take what follows a semicolon away before they look.
    /\/(?:\.|%(?:25)*2e){1,2}(?:[/;]|$)/i,
    "The path has a dot segment, which moves to another path. Send the path that is meant.",
  ],
  [
    /%(?:25)*(?:3[0-9]|4[1-9a-f]|5[0-9a]|6[1-9a-f]|7[0-9a]|2[de]|5f)/i,
    "The path has an encoded letter, digit, dot, dash or underscore, which means the same as a plain one. Send it plain.",
  ],
];

function fieldRefusal(req: IncomingMessage): string | undefined {
  const { headers, method, httpVersion } = req;
  // Node's parser takes a request without a version for one of HTTP/0.9.
  if (httpVersion !== "1.1" && httpVersion !== "1.0") return "Send the request as HTTP/1.1.";
  const first = hostRefusal(req) ?? repeatedField(req);
  if (first !== undefined) return first;
  const encoding = headers["transfer-encoding"];
  if (encoding !== undefined) {
    if (headers["content-length"] !== undefined) return bothLengths;
    if (encoding.toLowerCase() !== "chunked") {
      return "The body has a transfer encoding that is not plainly chunked. Send it chunked, or with a length.";
    }
    if (httpVersion !== "1.1") return "Chunked bodies came with HTTP/1.1. Send a length.";
  }
  const named = namedByConnection(headers.connection);
  if (named !== undefined) {
    for (const name of named) if (isEndToEnd(name)) return connectionNames(name);
  }
  for (const name of overrideNames) {
    const override = headers[name];
    if (override !== undefined && String(override).toUpperCase() !== method) {
      return `The ${name} field names another method than the request has. Send the method itself.`;
    }
  }
  return undefined;
}

const bothLengths = "The request has both a Content-Length and a Transfer-Encoding. Send one.";

function hostRefusal({ headers, httpVersion }: IncomingMessage): string | undefined {
  const { host } = headers;
  if (host === undefined)
    return httpVersion === "1.0" ? undefined : "The request has no Host field. Send one.";
  return hostPattern.test(host) ? undefined : "The Host field is not a host and a port. Send one that is.";
}

/** Of these Node knows the first, and who knows which one upstream goes by: another caller's, perhaps. */
function repeatedField({ rawHeaders, headers }: IncomingMessage): string | undefined {
  let seen = "";
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const spelling = rawHeaders[index] as string;
    const { length } = spelling;
    if (spelling.includes("_")) {
      const dashed = spelling.toLowerCase().replaceAll("_", "-");
      if (headers[dashed] !== undefined || decides(dashed)) return underscored(dashed);
    }
    if (length !== 4 && length !== 12 && length !== 13) continue;
    const name = spelling.toLowerCase();
    if (!singleNames.has(name)) continue;
    if (seen.includes(name)) return `The request has two ${name} fields. Send one.`;
    seen += name;
  }
  return undefined;
}

/** Services that hand fields to programs as variables, as CGI does, read an underscore in a name as a dash. */
function decides(name: string): boolean {
  return (
    endToEndNames.has(name) ||
    name === "transfer-encoding" ||
    isForwardingHeader(name) ||
    overrideNames.some((override) => override === name)
  );
}

function underscored(name: string): string {
  return `The request has a field that some services read as ${name}, with an underscore in its name. Send dashes.`;
}

const singleNames: ReadonlySet<string> = new Set(["host", "content-type", "authorization"]);

const hostPattern = /^(?:[\w.~-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?$/i;

/** Fields that a client could otherwise have taken away on the way to upstream, by calling them the connection's own. */
function isEndToEnd(name: string): boolean {
  return endToEndNames.has(name) || name.startsWith("x-");
}

const endToEndNames: ReadonlySet<string> = new Set([
  "host",
  "content-length",
  "content-type",
  "content-encoding",
  "authorization",
  "cookie",
  "idempotency-key",
  "forwarded",
  "via",
  "date",
]);

function connectionNames(name: string): string {
  return `The Connection field names ${name}, which is not for the connection alone. Leave it out.`;
}

/** Ways to say another method than the request line does: protection goes by the method. */
const overrideNames = ["x-http-method-override", "x-http-method", "x-method-override"] as const;
