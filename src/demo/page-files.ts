import type { IncomingMessage, ServerResponse } from "node:http";
import { strictHeaders } from "../admin/admin-handler.ts";
import { StaticFiles } from "../admin/static-files.ts";
import { splitTarget } from "../http/request.ts";

/** Where the build puts the page, seen from the sources and in the package. */
const folder = new URL(
  import.meta.url.endsWith(".ts") ? "../../dist/demo/page/" : "./page/",
  import.meta.url,
);

/** Serves the built page. */
export function pageFiles(): (req: IncomingMessage, res: ServerResponse) => void {
  const files = StaticFiles.in(folder);
  return (req, res) => {
    for (const [name, value] of strictHeaders) res.setHeader(name, value);
    if (files?.serve(splitTarget(req.url ?? "/").path, req, res)) return;
    const text =
      files === undefined ? "The page is not built: run npm run build:pages" : "There is nothing here.";
    res.writeHead(404, { "content-type": "text/plain" }).end(`${text}\n`);
  };
}
