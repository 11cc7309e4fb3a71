import { createHash } from "node:crypto";
import { expect } from "vitest";
import { deferred } from "../../support/deferred.ts";
import { type Handler, json } from "../application.ts";
import { expectReplay } from "../assertions.ts";
import type { Sending } from "../client.ts";
import type { Case } from "../harness.ts";

/** Answers with what it read, so that the test can compare it with what was sent. */
const readBack: Handler = async (visit) => {
  const body = await visit.body();
  return json(200, Buffer.isBuffer(body) ? bytesSeen(body) : { value: body ?? null });
};

function bytesSeen(body: Uint8Array) {
  return { length: body.byteLength, sha256: createHash("sha256").update(body).digest("hex") };
}

/** Sent twice; both times the answer must say that the handler saw exactly `seen`. */
function readable(name: string, sending: () => Sending, seen: unknown, options: Partial<Case> = {}): Case {
  return {
    name,
    ...options,
    async run(trial) {
      const site = await trial.start({ handler: readBack });
      const first = await site.send(sending());
      expect(JSON.parse(first.text)).toEqual(seen);
      expectReplay(first, await site.send(sending()));
      expect(site.executions).toBe(1);
    },
  };
}

const multipart = [
  "--frontier",
  'content-disposition: form-data; name="amount"',
  "",
  "10",
  "--frontier",
  'content-disposition: form-data; name="file"; filename="a.bin"',
  "content-type: application/octet-stream",
  "",
  "\u0000\u0001\u0002",
  "--frontier--",
  "",
].join("\r\n");

const allBytes = Uint8Array.from({ length: 256 }, (_, index) => index);
const large = Buffer.alloc(900_000, "0123456789abcdef");

/** In pieces that fit into no packet, each a turn of the event loop later than the one before. */
async function* inPieces(body: Uint8Array, pieceBytes: number): AsyncGenerator<Uint8Array> {
  for (let start = 0; start < body.byteLength; start += pieceBytes) {
    yield body.subarray(start, start + pieceBytes);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const octets = { "content-type": "application/octet-stream" };

export const bodyCases: readonly Case[] = [
  readable("the handler reads a JSON body", () => ({ json: { amount: 10, tags: ["a", "b"] } }), {
    value: { amount: 10, tags: ["a", "b"] },
  }),
  readable(
    "the handler reads a form",
    () => ({
      headers: { "content-type": "application/x-www-form-urlencoded" },
      body: "amount=10&to=M%C3%BCller",
    }),
    { value: { amount: "10", to: "Müller" } },
  ),
  readable(
    "the handler reads a multipart body as it was sent",
    () => ({ headers: { "content-type": "multipart/form-data; boundary=frontier" }, body: multipart }),
    bytesSeen(Buffer.from(multipart)),
  ),
  readable(
    "the handler reads raw bytes",
    () => ({ headers: octets, body: allBytes }),
    bytesSeen(Buffer.from(allBytes)),
  ),
  readable(
    "the handler reads a body that has no content-length",
    () => ({ headers: octets, chunks: [allBytes, allBytes] }),
    bytesSeen(Buffer.concat([allBytes, allBytes])),
  ),
  readable(
    "the handler reads JSON that comes in chunks",
    () => ({ headers: { "content-type": "application/json" }, chunks: ['{"amo', 'unt":', "10}"] }),
    { value: { amount: 10 } },
  ),
  readable(
    "the handler reads a body of 900 kB that comes in many chunks",
    () => ({ headers: octets, chunks: inPieces(large, 10_007) }),
    bytesSeen(large),
  ),
  {
    name: "the handler reads an empty body",
    async run(trial) {
      const site = await trial.start({ handler: readBack, parse: false });
      const first = await site.send({ body: "" });
      expect([bytesSeen(Buffer.alloc(0)), { value: null }]).toContainEqual(JSON.parse(first.text));
      expectReplay(first, await site.send({ body: "" }));
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "the handler reads an empty body that comes in chunks",
    async run(trial) {
      for (const parse of [false, true]) {
        const site = await trial.start({ handler: readBack, parse });
        const first = await site.send({ headers: octets, chunks: [] });
        expect(first.status).toBe(200);
        expectReplay(first, await site.send({ headers: octets, chunks: [] }));
        expect(site.executions).toBe(1);
      }
    },
  },
  {
    name: "the handler reads an empty body whose end comes late",
    async run(trial) {
      const site = await trial.start({ handler: readBack, parse: false });
      const end = deferred();
      const chunks = async function* () {
        yield "";
        await end;
      };
      const exchange = site.open({ headers: octets, chunks: chunks() });
      exchange.request.flushHeaders();
      await site.send({ key: "another" });
      end.resolve();
      expect((await exchange.response).statusCode).toBe(200);
      exchange.abort();
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "JSON that is not valid reaches the handler as it came",
    async run(trial) {
      const site = await trial.start({ handler: readBack, parse: false });
      const sending = { headers: { "content-type": "application/json" }, body: '{"amount": 10,,}' };
      const first = await site.send(sending);
      expect(JSON.parse(first.text)).toEqual(bytesSeen(Buffer.from(sending.body)));
      expectReplay(first, await site.send(sending));
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "JSON that the parser refuses is answered by it, and wedges nothing",
    except: {
      fetch: "there is no parser: the handler parses, and its failure is its answer",
      node: "there is no parser: the handler parses, and its failure is its answer",
      hono: "there is no parser: the handler parses, and its failure is its answer",
    },
    async run(trial) {
      const site = await trial.start();
      const headers = { "content-type": "application/json" };
      const first = await site.send({ headers, body: "{" });
      expect([400, 500]).toContain(first.status);
      const second = await site.send({ headers, body: "{" });
      expect({ status: second.status, text: second.text }).toEqual({
        status: first.status,
        text: first.text,
      });
      expect(site.executions).toBe(0);
      expect((await site.send({ key: "another" })).status).toBe(201);
    },
  },
];
