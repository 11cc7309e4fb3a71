import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { listening, portOf } from "../adapters/application.ts";

/** What is wrong with a server that is otherwise right. */
export type Flaw =
  | "reserves too late"
  | "compares nothing"
  | "stores nothing"
  | "forgets what was left by its client"
  | "stops what was left by its client, and calls it done"
  | "fails on long keys"
  | "cuts off long keys"
  | "fails on control characters"
  | "renders replays anew"
  | "loses the type of replays"
  | "overwrites the first answer on misuse"
  | "runs without a key"
  | "takes an empty key for none"
  | "fails when it is busy"
  | "marks first answers as replays"
  | "executes what is spelled differently"
  | "shares keys between callers"
  | "shares answers between paths"
  | "stores what it refused as done"
  | "has problems that lie";

interface Stored {
  readonly status: number;
  readonly body: string;
}

interface Row {
  readonly request: string;
  stored?: Stored;
  isLeft?: boolean;
}

const workMs = 20;
const longWorkMs = 120; // Surely cut in the middle, also on a busy machine.

/** A small payments API of its own, without a line of ours in it, whose flaw can be chosen. */
export class WrongServer {
  readonly url: string;
  readonly #server: Server;
  readonly #rows = new Map<string, Row>();
  readonly #effects = new Map<string, number>();
  readonly #flaw: Flaw | undefined;

  private constructor(server: Server, flaw: Flaw | undefined) {
    this.#server = server;
    this.#flaw = flaw;
    this.url = `http://127.0.0.1:${portOf(server)}/charges`;
  }

  static async start(flaw?: Flaw): Promise<WrongServer> {
    // What Node refuses by itself has to reach a server that fails on it.
    const server = await listening(
      createServer({ insecureHTTPParser: flaw === "fails on control characters" }),
    );
    const started = new WrongServer(server, flaw);
    server.on("request", (req, res) => void started.#answer(req, res));
    return started;
  }

  /** The ledger. */
  readonly effects = (key: string): number => this.#effects.get(key) ?? 0;

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  async #answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of req) chunks.push(chunk);
    const text = Buffer.concat(chunks).toString();
    const key = req.headers["idempotency-key"]?.toString();
    const isKeyless = key === undefined || (key === "" && this.#flaw === "takes an empty key for none");
    if (isKeyless && (this.#flaw === "runs without a key" || key === "")) {
      return give(res, await this.#execute(key ?? "", text));
    }
    const refusal = this.#refusalOf(key);
    if (key === undefined || refusal !== undefined)
      return problem(res, 400, refusal ?? "key-missing", this.#flaw);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: what it fails on.
    const isControl = /[\u0000-\u001f]/.test(key);
    if ((this.#flaw === "fails on long keys" && key.length > 255) || isControl)
      return give(res, { status: 500, body: "oops" });
    await this.#keyed(req, res, key, text);
  }

  async #keyed(req: IncomingMessage, res: ServerResponse, key: string, text: string): Promise<void> {
    const flaw = this.#flaw;
    const caller = flaw === "shares keys between callers" ? "" : req.headers.authorization;
    const kept = flaw === "cuts off long keys" ? key.slice(0, 255) : key;
    const id = JSON.stringify([caller, kept]);
    const request = JSON.stringify([flaw === "shares answers between paths" ? "" : req.url, text]);
    const row = this.#rows.get(id);
    if (row !== undefined && flaw !== "stores nothing") {
      const isSpelling = flaw === "executes what is spelled differently" && sameJson(row.request, request);
      if (row.request !== request && isSpelling) return give(res, await this.#execute(key, text));
      if (row.request !== request && flaw !== "compares nothing") {
        if (flaw === "overwrites the first answer on misuse") row.stored = { status: 422, body: "misused" };
        return problem(res, 422, "key-reused", flaw);
      }
      if (row.stored === undefined) {
        return flaw === "fails when it is busy"
          ? give(res, { status: 500, body: "busy" })
          : problem(res, 409, "in-flight", flaw);
      }
      return this.#replay(res, row.stored);
    }
    if (flaw === "reserves too late") await delay(5);
    const reserved: Row = { request };
    this.#rows.set(id, reserved);
    res.on("close", () => {
      const isLeft = !res.writableFinished;
      if (isLeft && flaw === "forgets what was left by its client") this.#rows.delete(id);
      reserved.isLeft = isLeft;
    });
    const done = await this.#execute(key, text, () => reserved.isLeft === true);
    reserved.stored =
      flaw === "stores what it refused as done" && done.status === 400 ? { ...done, status: 200 } : done;
    if (flaw === "marks first answers as replays") res.setHeader("idempotency-replayed", "true");
    give(res, done);
  }

  #replay(res: ServerResponse, stored: Stored): void {
    res.setHeader("idempotency-replayed", "true");
    if (this.#flaw === "loses the type of replays") res.setHeader("content-type", "text/plain");
    const at = process.hrtime.bigint().toString();
    const isAnew = this.#flaw === "renders replays anew";
    give(res, isAnew ? { ...stored, body: JSON.stringify({ ...JSON.parse(stored.body), at }) } : stored);
  }

  #refusalOf(key: string | undefined): string | undefined {
    const takesLong = this.#flaw === "fails on long keys" || this.#flaw === "cuts off long keys";
    if (key === undefined) return "key-missing";
    if (key === "" || /[\u007f-\uffff,]/.test(key) || (key.length > 255 && !takesLong)) return "key-invalid";
    return undefined;
  }

  async #execute(key: string, text: string, isLeft = () => false): Promise<Stored> {
    const { amount } = text === "" ? {} : JSON.parse(text);
    if (!Number.isInteger(amount)) return { status: 400, body: JSON.stringify({ error: "amount" }) };
    await delay(this.#flaw?.includes("left by its client") ? longWorkMs : workMs);
    const isStopped = isLeft() && this.#flaw === "stops what was left by its client, and calls it done";
    if (!isStopped) this.#effects.set(key, this.effects(key) + 1);
    const at = process.hrtime.bigint().toString();
    return { status: 201, body: JSON.stringify({ id: randomUUID(), amount, at }) };
  }
}

function sameJson(one: string, other: string): boolean {
  const members = (text: string) =>
    Object.entries(JSON.parse(JSON.parse(text)[1]))
      .sort()
      .toString();
  return members(one) === members(other);
}

function give(res: ServerResponse, { status, body }: Stored): void {
  res.statusCode = status;
  if (!res.hasHeader("content-type")) res.setHeader("content-type", "application/json");
  res.end(body);
}

function problem(res: ServerResponse, status: number, code: string, flaw: Flaw | undefined): void {
  res.setHeader("content-type", "application/problem+json");
  const told = flaw === "has problems that lie" ? 200 : status;
  give(res, {
    status,
    body: JSON.stringify({
      type: `https://wrong.example/${code}`,
      title: `Idempotency-Key: ${code}`,
      status: told,
    }),
  });
}
