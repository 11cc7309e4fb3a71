import { readdirSync, readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { extname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

/** Serves the built page. What is not in its folder when this is called does not exist. */
export function pageFiles(): (req: IncomingMessage, res: ServerResponse) => void {
  const isSource = import.meta.url.endsWith(".ts");
  const folder = fileURLToPath(new URL(isSource ? "../../dist/demo/page/" : "./page/", import.meta.url));
  const files = filesIn(folder);
  return (req, res) => {
    const { pathname } = new URL(req.url ?? "/", "http://page");
    const name = pathname === "/" ? "/index.html" : pathname;
    const body = files.get(name);
    if (body === undefined) {
      const text =
        files.size === 0 ? "The page is not built yet: npm run build:pages" : "There is nothing here.";
      res.writeHead(404, { ...headers, "content-type": "text/plain" }).end(`${text}\n`);
      return;
    }
    const cacheControl = name.startsWith("/assets/") ? "max-age=31536000, immutable" : "no-cache";
    const contentType = contentTypes[extname(name)] ?? "application/octet-stream";
    res.writeHead(200, { ...headers, "content-type": contentType, "cache-control": cacheControl });
    res.end(req.method === "HEAD" ? undefined : body);
  };
}

function filesIn(folder: string): ReadonlyMap<string, Buffer> {
  const files = new Map<string, Buffer>();
  let entries: string[];
  try {
    entries = readdirSync(folder, { recursive: true, encoding: "utf8" });
  } catch {
    return files;
  }
  for (const entry of entries) {
    const path = join(folder, entry);
    if (extname(path) in contentTypes) {
      files.set(`/${relative(folder, path).split(sep).join("/")}`, readFileSync(path));
    }
  }
  return files;
}

const contentTypes: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

const headers = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
};
