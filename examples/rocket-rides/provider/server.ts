// A payment provider in a process of its own, as unreliable as it is told to be. PORT, LEDGER (a file) and BEHAVIOUR
// (JSON, see below) set it up; POST /behaviour changes how it behaves while it runs.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { Ledger } from "./ledger.ts";

/** What becomes of one request for a charge. */
export type Fate =
  | "answer"
  /** The card is declined. That is an answer too, and it is kept like any other. */
  | "decline"
  /** The connection breaks before anything has happened. */
  | "lose-request"
  /** The charge is made, and the connection breaks before the answer is sent. */
  | "lose-response"
  /** The charge is made, and the answer comes `lateMs` later. */
  | "answer-late";

export interface Behaviour {
  /** Whether a second request with the same Idempotency-Key gets the first one's charge. */
  readonly deduplicates: boolean;
  /** The fates of the next requests, one each. */
  readonly next: readonly Fate[];
  /** The fate of all the others. */
  readonly always: Fate;
  readonly lateMs: number;
}

/** What the process tells its parent, if it has one. */
export interface ProviderListening {
  readonly port: number;
}

let behaviour: Behaviour = {
  deduplicates: true,
  next: [],
  always: "answer",
  lateMs: 15_000, // Longer than the service waits.
  ...JSON.parse(process.env.BEHAVIOUR ?? "{}"),
};
const ledger = new Ledger(process.env.LEDGER ?? ".latchkey/provider.jsonl");

const server = createServer((req, res) => {
  answer(req, res).catch((error) => json(res, 400, { error: String(error) }));
});

async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { pathname, searchParams } = new URL(req.url ?? "/", "http://provider");
  switch (`${req.method} ${pathname}`) {
    case "GET /charges":
      return json(res, 200, ledger.list({ reference: searchParams.get("reference") }));
    case "POST /charges":
      return charge(req, res);
    case "POST /behaviour":
      behaviour = { ...behaviour, ...(await bodyOf(req)) };
      return json(res, 200, behaviour);
    default:
      return json(res, 404, { error: "try GET /charges, POST /charges or POST /behaviour" });
  }
}

async function charge(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const order = await bodyOf(req);
  const [fate = behaviour.always, ...next] = behaviour.next;
  behaviour = { ...behaviour, next };
  if (fate === "lose-request") return void req.socket.destroy();

  const idempotencyKey = req.headers["idempotency-key"]?.toString() ?? null;
  const earlier =
    behaviour.deduplicates && idempotencyKey !== null ? ledger.withKey(idempotencyKey) : undefined;
  const made =
    earlier ??
    ledger.add({
      status: fate === "decline" ? "declined" : "succeeded",
      amount: Number(order.amount),
      currency: String(order.currency),
      reference: String(order.reference),
      idempotencyKey,
    });
  const status = made.status === "declined" ? 402 : 201;
  switch (fate) {
    case "answer":
    case "decline":
      return json(res, status, made);
    case "lose-response":
      return void req.socket.destroy();
    case "answer-late":
      setTimeout(() => json(res, status, made), behaviour.lateMs);
      return;
    default:
      fate satisfies never;
  }
}

async function bodyOf(req: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk);
  return Object(JSON.parse(Buffer.concat(chunks).toString()));
}

function json(res: ServerResponse, status: number, body: unknown): void {
  res.writeHead(status, { "Content-Type": "application/json" }).end(`${JSON.stringify(body)}\n`);
}

server.listen(Number(process.env.PORT ?? 0), "127.0.0.1", () => {
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  if (process.send === undefined)
    console.log(`The payment provider is listening on http://127.0.0.1:${port}`);
  else process.send({ port } satisfies ProviderListening);
});

// Without the process that started it, nobody would ever stop it. Whatever was charged is on the disk already.
for (const event of ["disconnect", "SIGINT", "SIGTERM"] as const) process.once(event, () => process.exit());
