import { createServer, type IncomingMessage } from "node:http";
import { idempotent, type NodeHandler, statusResource } from "../../../src/adapters/node.ts";
import {
  type Application,
  callersOf,
  errorBody,
  type Framework,
  type Handler,
  listening,
} from "../application.ts";
import { parsed, readBytes, writeReply } from "./node-answers.ts";

export const node: Framework = {
  name: "node",
  kind: "node",
  parserFirst: false,
  async start(application) {
    const { latchkey, mount, routes } = application;
    const protect = idempotent(latchkey, { ...application.policy, ...callers(application) });
    const onRoute = mount === "route" || mount === "both";
    const handlers = new Map<string, NodeHandler>();
    for (const [path, handler] of Object.entries(routes)) {
      const plain = handlerOf(handler, application);
      handlers.set(path, onRoute ? protect(plain) : plain);
    }
    const status = statusResource(latchkey, callers(application));
    const route: NodeHandler = (req, res) => {
      const path = (req.url ?? "/").replace(/\?.*/s, "");
      if (latchkey.statusPath !== undefined && path.startsWith(`${latchkey.statusPath}/`)) {
        return status(req, res);
      }
      const handler = handlers.get(path);
      return handler === undefined ? res.writeHead(404).end() : handler(req, res);
    };
    const whole = mount === "application" || mount === "both" ? protect(route) : route;
    return listening(createServer((req, res) => void whole(req, res)));
  },
};

function callers(application: Application) {
  return callersOf(application, (req: IncomingMessage, name) => req.headers[name] as string | undefined);
}

function handlerOf(handler: Handler, { parse, mount }: Application): NodeHandler {
  return (req, res) => {
    const visit = {
      method: req.method ?? "",
      path: req.url ?? "",
      header: (name: string) => req.headers[name] as string | undefined,
      body: async () => {
        const bytes = await readBytes(req);
        return parse ? parsed(bytes, req.headers["content-type"]) : bytes;
      },
    };
    const reply = handler(visit);
    const written =
      reply instanceof Promise ? reply.then((it) => writeReply(res, it)) : writeReply(res, reply);
    if (mount !== "nowhere") return written;
    // Without Latchkey there is nobody who would answer for a handler that failed.
    return written.catch((error) => {
      const { status, body } = errorBody(error);
      res.writeHead(status).end(JSON.stringify(body));
    });
  };
}
