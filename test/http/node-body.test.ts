import { once } from "node:events";
import { createServer, type IncomingMessage, request } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { describe, expect, it } from "vitest";
import { tapOf } from "../../src/http/node-body-tap.ts";
import { readNodeBody } from "../../src/http/node-request.ts";
import { RequestAbortedError } from "../../src/http/request.ts";

interface Read {
  /** What the gate was given. */
  readonly read: string;
  /** What whoever came next could still read from the request itself. */
  readonly left: string;
  readonly isTapped: boolean;
}

/** Reads one body as the gate does, and then once more as a handler would. */
async function readTwice(
  send: (port: number) => void,
  options: { readonly turnsBefore?: number; readonly bytesMax?: number } = {},
): Promise<Read | Error> {
  const { turnsBefore = 0, bytesMax = 1_000_000 } = options;
  const server = createServer();
  // In the turn in which the request comes: what waits for it may come too late.
  const reading = new Promise<Read | Error>((resolve) => {
    server.on("request", async (req, res) => {
      for (let turn = 0; turn < turnsBefore; turn++) await new Promise((next) => setImmediate(next));
      resolve(await readAndLookAgain(req, bytesMax));
      res.end();
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  send((server.address() as AddressInfo).port);
  try {
    return await reading;
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

async function readAndLookAgain(req: IncomingMessage, bytesMax: number): Promise<Read | Error> {
  try {
    const reading = await readNodeBody(req, bytesMax);
    if (reading.kind !== "body" || reading.body.kind !== "bytes") return new Error(reading.kind);
    const isTapped = tapOf(req) !== undefined;
    return { read: Buffer.from(reading.body.bytes).toString(), left: await rest(req), isTapped };
  } catch (error) {
    return error as Error;
  }
}

async function rest(req: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of req) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

const post =
  (body: string, headers: Record<string, string | number> = { "content-length": Buffer.byteLength(body) }) =>
  (port: number) => {
    request({ port, host: "127.0.0.1", method: "POST", headers })
      .on("error", () => {})
      .end(body);
  };

/** The head, and then pieces of the body one after the other. */
const inPieces =
  (length: number, pieces: readonly string[], atLast: "wait" | "hang up" = "wait") =>
  (port: number) => {
    const socket = connect(port, "127.0.0.1").on("error", () => {});
    socket.write(`POST / HTTP/1.1\r\nhost: x\r\ncontent-length: ${length}\r\n\r\n`);
    const next = (index: number) => {
      const piece = pieces[index];
      if (piece !== undefined) {
        socket.write(piece);
        setTimeout(next, 20, index + 1);
      } else if (atLast === "hang up") socket.destroy();
    };
    setTimeout(next, 20, 0);
  };

describe("the body of a Node request", () => {
  const large = "x".repeat(100_000);

  it("is kept on its way where none of it has come yet, and else read and put back: nobody can tell which", async () => {
    const text = '{"amount":500,"note":"für dich"}';
    const same = { read: text, left: text };
    expect(await readTwice(post(text))).toEqual({ ...same, isTapped: true });
    expect(await readTwice(inPieces(Buffer.byteLength(text), [text.slice(0, 5), text.slice(5)]))).toEqual({
      ...same,
      isTapped: true,
    });
    expect(await readTwice(post(text), { turnsBefore: 3 })).toEqual({ ...same, isTapped: false });
    expect(await readTwice(post(text, { "transfer-encoding": "chunked" }))).toEqual({
      ...same,
      isTapped: false,
    });
  });

  it("is read and put back if the request has no room for all of it", async () => {
    expect(await readTwice(post(large))).toEqual({ read: large, left: large, isTapped: false });
  });

  it("is refused if it is too large, however it comes", async () => {
    expect(await readTwice(post("12345"), { bytesMax: 4 })).toEqual(new Error("tooLarge"));
    expect(await readTwice(post("12345", { "transfer-encoding": "chunked" }), { bytesMax: 4 })).toEqual(
      new Error("tooLarge"),
    );
  });

  it("of a client that goes away while it is sending is aborted, whichever way it is read", async () => {
    expect(await readTwice(inPieces(10, ["12345"], "hang up"))).toBeInstanceOf(RequestAbortedError);
    expect(await readTwice(inPieces(10, ["12345"], "hang up"), { turnsBefore: 3 })).toBeInstanceOf(
      RequestAbortedError,
    );
    expect(await readTwice(inPieces(100_000, ["12345"], "hang up"))).toBeInstanceOf(RequestAbortedError);
  });
});
