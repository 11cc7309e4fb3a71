import { hash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { extname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

interface StaticFile {
  readonly bytes: Buffer;
  readonly type: string;
  readonly etag: string;
  readonly cacheControl: string;
}

/**
 * The files of a built page. They are all read when it is made, by the paths under which they are asked for, so that no
 * request has a say in what is read from the disk.
 */
export class StaticFiles {
  readonly #files: ReadonlyMap<string, StaticFile>;

  private constructor(files: ReadonlyMap<string, StaticFile>) {
    this.#files = files;
  }

  /** Undefined if the page is not built. */
  static in(folder: URL): StaticFiles | undefined {
    const root = fileURLToPath(folder);
    if (!existsSync(join(root, "index.html"))) return undefined;
    const files = new Map<string, StaticFile>();
    for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const path = join(entry.parentPath, entry.name);
      files.set(`/${relative(root, path).split(sep).join("/")}`, fileAt(path));
    }
    const index = files.get("/index.html");
    if (index !== undefined) files.set("/", index);
    return new StaticFiles(files);
  }

  /** Answers a GET or HEAD; false if there is no such file. */
  serve(path: string, req: IncomingMessage, res: ServerResponse): boolean {
    const file = this.#files.get(path);
    if (file === undefined) return false;
    res.setHeader("etag", file.etag);
    res.setHeader("cache-control", file.cacheControl);
    if (req.headers["if-none-match"]?.includes(file.etag)) {
      res.writeHead(304).end();
      return true;
    }
    res.writeHead(200, { "content-type": file.type, "content-length": file.bytes.byteLength });
    res.end(req.method === "HEAD" ? undefined : file.bytes);
    return true;
  }
}

function fileAt(path: string): StaticFile {
  const bytes = readFileSync(path);
  return {
    bytes,
    type: types[extname(path)] ?? "application/octet-stream",
    etag: `"${hash("sha256", bytes, "base64url").slice(0, 22)}"`,
    // What has its digest in its name is never anything else.
    cacheControl: /-[\w-]{8}\.\w+$/.test(path) ? "public, max-age=31536000, immutable" : "no-cache",
  };
}

const types: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".ico": "image/x-icon",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".map": "application/json",
  ".png": "image/png",
  ".svg": "image/svg+xml",
  ".txt": "text/plain; charset=utf-8",
  ".woff2": "font/woff2",
};
