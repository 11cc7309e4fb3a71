import { createServer, type IncomingMessage, type Server } from "node:http";
import { statusResource } from "../../../src/adapters/node.ts";
import { problemLine } from "../../../src/gateway/config/problems.ts";
import { checkText } from "../../../src/gateway/config/settings.ts";
import { startGateway } from "../../../src/gateway/gateway.ts";
import { Proxy as ReverseProxy } from "../../../src/gateway/proxy/proxy.ts";
import type { LatchkeyEvent } from "../../../src/index.ts";
import type { FaultyStore } from "../../../src/testing/index.ts";
import {
  type Application,
  callersOf,
  errorBody,
  type Fields,
  type Framework,
  type Handler,
  listening,
  type Reply,
} from "../../adapters/application.ts";
import { parsed } from "../../adapters/frameworks/node-answers.ts";
import type { SiteOptions } from "../../adapters/harness.ts";
import type { AskedRequest, PythonUpstream, Steps } from "../python-upstream.ts";
import { configOf } from "./gateway-config.ts";

/** How an application of the suite is served. */
export interface Serving {
  /** What the case has asked for. */
  readonly options: SiteOptions;
  /** The gateway's own word for who is calling, or `past` where the case asks for what no configuration can say. */
  readonly by: string | "past";
}

/** The suite's applications as a service in Python, behind the gateway. What a handler says goes over the wire twice. */
export function gatewayFramework(upstream: () => PythonUpstream, serving: () => Serving): Framework {
  return {
    name: "gateway, with a service in Python behind it",
    kind: "gateway",
    parserFirst: false,
    async start(application) {
      const address = upstream().mount((request, steps) => serve(application, request, steps));
      const { options, by } = serving();
      return by === "past"
        ? startProxy(application, address)
        : startWhole(
            application,
            configOf(options, { address, tenant: by, paths: Object.keys(application.routes) }),
          );
    },
  };
}

/** The gateway as it is started by its command, on the store that the case looks at. */
async function startWhole({ latchkey }: Application, config: object): Promise<Server> {
  const { settings, errors } = checkText({ text: JSON.stringify(config), file: undefined, env: {} });
  if (settings === undefined) throw new Error(errors.map(problemLine).join("\n"));
  const store = latchkey.store as FaultyStore;
  const gateway = await startGateway(settings, { logger: silent, store });
  // It asks its store once before it opens, which no case counts.
  for (const verb of Object.keys(store.calls)) Object.assign(store.calls, { [verb]: 0 });
  const tell = (event: LatchkeyEvent) => latchkey.engine.events.emit(event);
  gateway.latchkey.subscribe(tell);
  const { server } = gateway;
  server.on("close", () => void gateway.close({ drainMs: 0 }));
  return server;
}

const silent = { debug() {}, info() {}, warn() {}, error() {} };

/** The proxy alone, for options that are functions. */
async function startProxy(application: Application, address: string): Promise<Server> {
  const { latchkey, mount, policy } = application;
  const proxy = new ReverseProxy({ upstream: address });
  const protect = proxy.protect(latchkey, { ...policy, ...callers(application) });
  const status = statusResource(latchkey, callers(application));
  const server = createServer((req, res) => {
    const path = (req.url ?? "/").replace(/\?.*/s, "");
    if (latchkey.statusPath !== undefined && path.startsWith(`${latchkey.statusPath}/`)) {
      void status(req, res);
      return;
    }
    const isProtected = mount === "application" || mount === "both" || path in application.routes;
    void (mount !== "nowhere" && isProtected ? protect(req, res) : proxy.pass(req, res));
  });
  server.on("close", () => void proxy.close({ drainMs: 0 }));
  return listening(server);
}

function callers(application: Application) {
  return callersOf(application, (req: IncomingMessage, name) => req.headers[name] as string | undefined);
}

async function serve(application: Application, request: AskedRequest, steps: Steps): Promise<void> {
  const handler = application.routes[request.path.replace(/\?.*/s, "")];
  if (handler === undefined) return sendReply(steps, { kind: "empty", status: 404, fields: [] });
  try {
    await sendReply(steps, await run(handler, application, request));
  } catch (error) {
    const { status, body } = errorBody(error);
    await sendReply(steps, { kind: "json", status, fields: [], value: body });
  }
}

async function run(handler: Handler, { parse }: Application, request: AskedRequest): Promise<Reply> {
  const header = (name: string) => request.headers.find(([other]) => other === name)?.[1];
  const reply = await handler({
    method: request.method,
    path: request.path,
    header,
    body: async () => (parse ? parsed(request.body, header("content-type")) : request.body),
  });
  if (reply.kind === "fail") throw Object.assign(new Error(reply.message), { status: reply.status });
  return reply;
}

async function sendReply(steps: Steps, reply: Reply): Promise<void> {
  switch (reply.kind) {
    case "json":
      return sendWhole(steps, reply, "application/json", JSON.stringify(reply.value));
    case "text":
      return sendWhole(steps, reply, "text/plain; charset=utf-8", reply.text);
    case "bytes":
      return sendWhole(steps, reply, "application/octet-stream", reply.bytes);
    case "empty":
      await steps.head(reply.status, reply.status === 204 ? [] : [["content-length", "0"]], false);
      await steps.end();
      return;
    case "pieces":
      return sendPieces(steps, reply.status, reply.fields, reply.pieces);
    case "stream":
      return sendPieces(steps, reply.status, reply.fields, reply.source());
    case "fail":
      throw Object.assign(new Error(reply.message), { status: reply.status });
    case "twice":
      await steps.raw(`${wire(reply.first)}${wire(reply.second)}`);
      await steps.end();
      return;
    default:
      return reply satisfies never;
  }
}

async function sendWhole(
  steps: Steps,
  { status, fields }: { status: number; fields: Fields },
  type: string,
  body: string | Uint8Array,
): Promise<void> {
  const length = Buffer.byteLength(body);
  await steps.head(status, [["content-type", type], ...fields, ["content-length", String(length)]], false);
  await steps.write(Buffer.from(body as Uint8Array));
  await steps.end();
}

async function sendPieces(
  steps: Steps,
  status: number,
  fields: Fields,
  pieces: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>,
): Promise<void> {
  await steps.head(status, fields, true);
  try {
    for await (const piece of pieces) if (!(await steps.write(Buffer.from(piece as Uint8Array)))) return;
  } catch {
    await steps.cut();
    return;
  }
  await steps.end();
}

/** Two answers, one right after the other, as nothing but a broken service sends them. */
function wire(reply: Reply): string {
  const text = reply.kind === "text" ? reply.text : "second";
  const status = "status" in reply ? reply.status : 200;
  return `HTTP/1.1 ${status} Whatever\r\ncontent-type: text/plain\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
}
