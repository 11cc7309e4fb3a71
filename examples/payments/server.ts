// A small payments API behind Latchkey, on an embedded SQLite file: charge, refund, list.
import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createLatchkey } from "latchkey";
import { idempotent } from "latchkey/node";
import { sqliteStore } from "latchkey/sqlite";
import { openLedger } from "./ledger.ts";

const port = portFrom(process.env.PORT);
const folder = ".latchkey";

const latchkey = createLatchkey({
  store: sqliteStore(`${folder}/demo.db`),
  // Whoever calls says so in a header here; a real API takes it from what authenticated the caller.
  tenant: (request) => request.header("x-account") ?? "demo",
});
const ledger = openLedger(`${folder}/ledger.jsonl`);

async function payments(req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { pathname } = new URL(req.url ?? "/", "http://localhost");
  if (req.method === "GET" && pathname === "/charges") return json(res, 200, ledger.list());
  if (req.method === "POST" && pathname === "/charges") {
    const { amount, currency } = await bodyOf(req);
    if (!Number.isInteger(amount) || (amount as number) <= 0) {
      return json(res, 400, { error: "amount must be a whole number of cents above 0" });
    }
    const charge = ledger.charge({ amount: amount as number, currency: String(currency ?? "usd") });
    res.setHeader("Location", `/charges/${charge.id}`);
    return json(res, 201, charge);
  }
  if (req.method === "POST" && pathname === "/refunds") {
    const { charge } = await bodyOf(req);
    const refund = ledger.refund(String(charge));
    if (refund === "unknown charge") return json(res, 404, { error: "there is no such charge" });
    if (refund === "already refunded") return json(res, 409, { error: "this charge was refunded before" });
    return json(res, 201, refund);
  }
  return json(res, 404, { error: "try GET /charges, POST /charges or POST /refunds" });
}

const server = createServer(idempotent(latchkey)(payments));
server.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EADDRINUSE") throw error;
  console.error(`Port ${port} is taken. Choose another one: PORT=8788 npm start -w examples/payments`);
  process.exit(1);
});
server.listen(port, "127.0.0.1", () => {
  const address = server.address();
  greet(`http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : port}`);
});

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    server.close(() => void latchkey.close());
    server.closeIdleConnections();
  });
}

function greet(url: string): void {
  // A new key for every start, so that the first command is always a first run.
  const key = randomUUID();
  const charge = (amount: number) =>
    `curl -i ${url}/charges -H 'Idempotency-Key: ${key}' -H 'Content-Type: application/json' -d '{"amount":${amount},"currency":"usd"}'`;
  console.log(
    [
      `A payments API behind Latchkey is listening on ${url} (records in ${folder}/demo.db).`,
      "",
      "1. Pay. It is executed:",
      charge(500),
      "",
      "2. The answer got lost? Send it again. Nothing is executed, the same answer comes back (Idempotency-Replayed: true):",
      charge(500),
      "",
      "3. The same key for another amount is a mistake, and refused (422):",
      charge(900),
      "",
      `One charge is in the ledger: curl ${url}/charges`,
    ].join("\n"),
  );
}

function portFrom(text: string | undefined): number {
  const number = Number(text ?? 8787);
  if (Number.isInteger(number) && number >= 0 && number <= 65_535) return number;
  console.error(`PORT is "${text}" and must be a number from 0 to 65535.`);
  process.exit(1);
}

async function bodyOf(req: IncomingMessage): Promise<Record<string, unknown>> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk);
  try {
    return Object(JSON.parse(Buffer.concat(chunks).toString()));
  } catch {
    return {};
  }
}

function json(res: ServerResponse, status: number, body: unknown): void {
  res.writeHead(status, { "Content-Type": "application/json" }).end(`${JSON.stringify(body)}\n`);
}
