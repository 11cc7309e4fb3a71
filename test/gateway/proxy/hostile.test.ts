import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { expectProblem } from "../../adapters/assertions.ts";
import { speak } from "../../adapters/client.ts";
import { until } from "../../adapters/harness.ts";
import { closesAfterwards, Gateway, type GatewayOptions } from "./gateway.ts";
import { answerText, Misbehaving } from "./misbehaving.ts";

async function start(options: GatewayOptions = {}) {
  const upstream = closesAfterwards(await Misbehaving.start());
  upstream.onData = (socket) => socket.write(answerText("done"));
  return { upstream, gateway: await Gateway.start({ upstream: upstream.address }, options) };
}

const host = "host: localhost\r\n";
const keyed = `${host}idempotency-key: key-1\r\n`;
const second = `GET /second HTTP/1.1\r\n${host}\r\n`;

/** Who refuses it: Node's parser, or the proxy after it. */
type Refuser = "parser" | "proxy";

/** Requests that two readers could understand differently, as they are on the wire. */
const smuggled: Readonly<Record<string, readonly [by: Refuser, status: number, wire: string]>> = {
  "both lengths": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n${second}`,
  ],
  "both lengths, the other way round": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n${second}`,
  ],
  "two lengths": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}content-length: 4\r\ncontent-length: 5\r\n\r\nabcde`,
  ],
  "one length, said twice": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}content-length: 4\r\ncontent-length: 4\r\n\r\nabcd`,
  ],
  "a list of lengths": ["parser", 400, `POST / HTTP/1.1\r\n${keyed}content-length: 4, 4\r\n\r\nabcd`],
  "a length with a sign": ["parser", 400, `POST / HTTP/1.1\r\n${keyed}content-length: +4\r\n\r\nabcd`],
  "a length in hexadecimal": ["parser", 400, `POST / HTTP/1.1\r\n${keyed}content-length: 0x4\r\n\r\nabcd`],
  "a length that overflows": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}content-length: 18446744073709551620\r\n\r\nabcd`,
  ],
  "a folded field": ["parser", 400, `GET / HTTP/1.1\r\n${host}x-a: b\r\n transfer-encoding: chunked\r\n\r\n`],
  "a bare CR in a field": [
    "parser",
    400,
    `GET / HTTP/1.1\r\n${host}x-a: b\rtransfer-encoding: chunked\r\n\r\n`,
  ],
  "a bare LF after a field": ["parser", 400, `GET / HTTP/1.1\r\n${host}x-a: b\nx-c: d\r\n\r\n`],
  "a bare LF after the request line": ["parser", 400, `GET / HTTP/1.1\n${host}\r\n`],
  "a space before the colon": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}transfer-encoding : chunked\r\n\r\n0\r\n\r\n`,
  ],
  "a space before the first field": ["parser", 400, `GET / HTTP/1.1\r\n ${host}\r\n`],
  "NUL in a field": ["parser", 400, `GET / HTTP/1.1\r\n${host}x-a: b\0c\r\n\r\n`],
  "a field name with a control character": ["parser", 400, `GET / HTTP/1.1\r\n${host}x\x01a: b\r\n\r\n`],
  "an encoding that only looks chunked": [
    "proxy",
    400,
    `POST / HTTP/1.1\r\n${keyed}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n`,
  ],
  "two encodings": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n`,
  ],
  "an encoding on top of chunked": [
    "proxy",
    400,
    `POST / HTTP/1.1\r\n${keyed}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
  ],
  "chunks in HTTP/1.0": [
    "proxy",
    400,
    `POST / HTTP/1.0\r\n${keyed}transfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
  ],
  "a chunk whose size has a sign": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}transfer-encoding: chunked\r\n\r\n+4\r\nabcd\r\n0\r\n\r\n`,
  ],
  "a chunk whose size has a prefix": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}transfer-encoding: chunked\r\n\r\n0x4\r\nabcd\r\n0\r\n\r\n`,
  ],
  "a chunk whose size overflows": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\nabcd\r\n0\r\n\r\n`,
  ],
  "a chunk that is longer than it says": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}transfer-encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n`,
  ],
  "a chunk that ends in a bare LF": [
    "parser",
    400,
    `POST / HTTP/1.1\r\n${keyed}transfer-encoding: chunked\r\n\r\n4\nabcd\n0\n\n`,
  ],
  "overlong chunk extensions": [
    "parser",
    413,
    `POST / HTTP/1.1\r\n${keyed}transfer-encoding: chunked\r\n\r\n4;${"x".repeat(20_000)}\r\nabcd\r\n0\r\n\r\n`,
  ],
  "HTTP/0.9": ["proxy", 400, "GET /\r\n\r\n"],
  "HTTP/2 without having agreed on it": ["parser", 400, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
  "a version that is none": ["parser", 400, `GET / HTTP/1.9\r\n${host}\r\n`],
  "a method that is none": ["parser", 400, `post / HTTP/1.1\r\n${keyed}\r\n`],
  "no host": ["parser", 400, "GET / HTTP/1.1\r\nconnection: close\r\n\r\n"],
  "two hosts": ["proxy", 400, "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"],
  "a host with a path": ["proxy", 400, "GET / HTTP/1.1\r\nhost: a/b\r\n\r\n"],
  "a host with a user": ["proxy", 400, "GET / HTTP/1.1\r\nhost: a@b\r\n\r\n"],
  "a host with a space": ["proxy", 400, "GET / HTTP/1.1\r\nhost: a b\r\n\r\n"],
  "an empty host": ["proxy", 400, "GET / HTTP/1.1\r\nhost:\r\n\r\n"],
  "another host in its target": ["proxy", 400, `GET http://other/ HTTP/1.1\r\n${host}\r\n`],
  "another scheme in its target": ["proxy", 400, `GET ftp://localhost/ HTTP/1.1\r\n${host}\r\n`],
  "an asterisk for a target": ["proxy", 400, `OPTIONS * HTTP/1.1\r\n${host}\r\n`],
  "a tunnel to anywhere": ["parser", 0, `CONNECT localhost:22 HTTP/1.1\r\n${host}\r\n`],
  "two authorizations": [
    "proxy",
    400,
    `POST / HTTP/1.1\r\n${keyed}authorization: Bearer a\r\nauthorization: Bearer b\r\ncontent-length: 0\r\n\r\n`,
  ],
  "the key as the connection's own": [
    "proxy",
    400,
    `POST / HTTP/1.1\r\n${keyed}connection: close, idempotency-key\r\ncontent-length: 0\r\n\r\n`,
  ],
  "another method in a field": [
    "proxy",
    400,
    `GET / HTTP/1.1\r\n${host}x-http-method-override: POST\r\n\r\n`,
  ],
  "another method in a field with underscores": [
    "proxy",
    400,
    `GET / HTTP/1.1\r\n${host}X_HTTP_Method-Override: POST\r\n\r\n`,
  ],
  "another sender in a field with underscores": [
    "proxy",
    400,
    `GET / HTTP/1.1\r\n${host}x_forwarded_for: 10.0.0.1\r\n\r\n`,
  ],
  "a second key in a field with an underscore": [
    "proxy",
    400,
    `POST / HTTP/1.1\r\n${keyed}idempotency_key: key-2\r\ncontent-length: 0\r\n\r\n`,
  ],
  "a second account in a field with an underscore": [
    "proxy",
    400,
    `GET / HTTP/1.1\r\n${host}account-id: 1\r\naccount_id: 2\r\n\r\n`,
  ],
};

describe("a request that can be read in two ways is refused, and upstream sees no byte of it:", () => {
  for (const [what, [by, status, wire]] of Object.entries(smuggled)) {
    it(`${what} (by the ${by})`, async () => {
      const { upstream, gateway } = await start();
      const heard = await speak(gateway.port, by === "proxy" ? closing(wire) : wire);
      if (status === 0) expect(heard).toBe("");
      else expect(heard.slice(0, 12)).toBe(`HTTP/1.1 ${status}`);
      expect(heard.match(/HTTP\/1\.1 /g) ?? []).toHaveLength(status === 0 ? 0 : 1);
      if (status !== 0) expect(heard).toMatch(by === "proxy" ? /request-refused/ : /connection: close/i);
      expect(upstream.heard.join("")).toBe("");
      expect(gateway.events.filter((event) => event.type === "reserved")).toEqual([]);
    });
  }
});

/** Has the server end the connection with its answer, as it does by itself after what it could not read. */
function closing(wire: string): string {
  return wire.includes("connection:") ? wire : wire.replace("\r\n", "\r\nconnection: close\r\n");
}

const sentences: Readonly<Record<string, readonly string[]>> = {
  "dot segment": [
    "/a/../b",
    "/a/./b",
    "/..",
    "/a/%2e%2e/b",
    "/a/.%2e/b",
    "/a/%2E./b",
    "/a/..;/b",
    "/a/%252e%252e/b",
  ],
  backslash: ["/a\\b", "/a\\..\\b"],
  "encoded slash": ["/a%2fb", "/a%2Fb", "/a%5cb", "/a%252fb", "/a%c0%afb", "/%C0%AE%c0%ae/b", "/%e0%80%ae/b"],
  "two slashes": ["//a", "/a//b"],
  "control character": ["/a%00", "/a%0d%0ab", "/a%7f", "/a%1f"],
  fragment: ["/a#b", "/a?b#c"],
  "encodes nothing": ["/a%", "/a%2", "/a%zz"],
  "encoded letter": ["/%63harges", "/charge%73", "/a%2d", "/a%30", "/a%2541"],
};

const plain = [
  "/",
  "/a",
  "/a.b/c..d",
  "/.well-known/x",
  "/a%20b",
  "/%C3%A9",
  "/a?b=%2f..%2f//c&d=%41",
  "/a:b@c;d=1",
  "/~a",
];

describe("a path that may lead elsewhere is refused, protected or not:", () => {
  for (const [what, paths] of Object.entries(sentences)) {
    it(`${what}: ${paths.join(" ")}`, async () => {
      const { upstream, gateway } = await start();
      for (const path of paths) {
        for (const method of ["POST", "GET"]) {
          const wire = `${method} ${path} HTTP/1.1\r\n${keyed}connection: close\r\n\r\n`;
          const heard = await speak(gateway.port, wire);
          expect([path, heard.slice(0, 12)]).toEqual([path, "HTTP/1.1 400"]);
          expect([path, heard]).toEqual([path, expect.stringContaining(what)]);
        }
      }
      expect(upstream.heard.join("")).toBe("");
    });
  }

  it("and what only looks like it is passed on as it came", async () => {
    const { upstream, gateway } = await start();
    for (const path of plain) {
      const wire = `GET ${path} HTTP/1.1\r\n${host}connection: close\r\n\r\n`;
      expect([path, (await speak(gateway.port, wire)).slice(0, 12)]).toEqual([path, "HTTP/1.1 201"]);
      expect(upstream.heard.join("")).toContain(`GET ${path} HTTP/1.1`);
    }
  });

  it("and a target that names the host itself is passed on without it", async () => {
    const { upstream, gateway } = await start();
    for (const [target, path] of [
      ["http://localhost/a?b", "/a?b"],
      ["HTTP://LOCALHOST", "/"],
      ["http://localhost?b", "/?b"],
      ["http://localhost?c=/d", "/?c=/d"],
    ]) {
      await speak(gateway.port, `GET ${target} HTTP/1.1\r\n${host}connection: close\r\n\r\n`);
      expect(upstream.heard.join("")).toContain(`GET ${path} HTTP/1.1`);
    }
    // And is the same request as without it.
    for (const target of ["/?c=/d", "http://localhost?c=/d"]) {
      const wire = `POST ${target} HTTP/1.1\r\n${keyed}content-length: 0\r\nconnection: close\r\n\r\n`;
      expect((await speak(gateway.port, wire)).slice(0, 12)).toBe("HTTP/1.1 201");
    }
    expect(upstream.requests()).toBe(1);
  });
});

describe("the head of a request", () => {
  it("may be as large as it is said, and is 431 beyond", async () => {
    const { upstream, gateway } = await start({ listen: { maxHeaderBytes: 4000 } });
    const headers = (bytes: number) => ({ "x-large": "x".repeat(bytes) });
    expect((await gateway.send({ method: "GET", headers: headers(3000) })).status).toBe(201);
    const before = upstream.heard.join("");
    const refused = await gateway.send({ method: "GET", headers: headers(5000) });
    expect(refused.status).toBe(431);
    expect(refused.headers["content-type"]).toBe("application/problem+json");
    expect(upstream.heard.join("")).toBe(before);
  });

  it("is passed on with every one of its fields, however many there are", async () => {
    const { upstream, gateway } = await start({ listen: { maxHeaderBytes: 65_536 } });
    const fields = Array.from({ length: 2500 }, (_, index) => `x${index}: 1\r\n`).join("");
    await speak(gateway.port, `GET / HTTP/1.1\r\n${host}connection: close\r\n${fields}\r\n`);
    expect(upstream.heard.join("")).toContain("x2499: 1");
  });

  it("is waited for only so long", async () => {
    const { upstream, gateway } = await start({ listen: { headersTimeoutMs: 100 } });
    expect(await speak(gateway.port, "GET / HTTP/1.1\r\nhost: loc")).toMatch(/^HTTP\/1\.1 408 /);
    expect(upstream.heard.join("")).toBe("");
  });
});

it("a body that turns out to be badly framed is broken off at upstream, never ended there", async () => {
  const upstream = closesAfterwards(await Misbehaving.start());
  const gateway = await Gateway.start({ upstream: upstream.address });
  const client = connect(gateway.port, "127.0.0.1");
  client.on("error", () => {});
  client.write(`PUT / HTTP/1.1\r\n${host}transfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n`);
  await until("the first chunk at upstream", () => upstream.heard.join("").includes("abcd"));
  const closed = new Promise((resolve) => upstream.sockets[0]?.on("close", resolve));
  client.write("zz\r\n");
  await closed;
  expect(upstream.heard.join("")).not.toContain("\r\n0\r\n");
  client.destroy();
});

it("a request that has come round three times is a loop", async () => {
  const { upstream, gateway } = await start();
  const via = (hops: number) => ({ via: Array.from({ length: hops }, () => "1.1 latchkey").join(", ") });
  expect((await gateway.send({ method: "GET", headers: via(2) })).status).toBe(201);
  const before = upstream.requests("GET");
  expectProblem(await gateway.send({ method: "GET", headers: via(3) }), 508, "loop-detected", "never");
  expect(upstream.requests("GET")).toBe(before);
});

/** Answers that undici takes, or might, and that another reader could take differently. */
const ambiguous: Readonly<Record<string, string>> = {
  "both lengths":
    "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n",
  "two lengths": "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 4\r\n\r\ndone",
  "two different lengths": "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\ndone",
  "an encoding that is not plainly chunked":
    "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n",
  "an encoding that only looks chunked": "HTTP/1.1 200 OK\r\ntransfer-encoding: xchunked\r\n\r\ndone",
  "two encodings":
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n",
  "a folded field": "HTTP/1.1 200 OK\r\nx-a: b\r\n c: d\r\ncontent-length: 4\r\n\r\ndone",
  "a bare CR in a field": "HTTP/1.1 200 OK\r\nx-a: b\rset-cookie: c\r\ncontent-length: 4\r\n\r\ndone",
  "a bare LF": "HTTP/1.1 200 OK\nx-a: b\ncontent-length: 4\n\ndone",
  "a protocol that nobody asked for":
    "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
};

describe("an answer that can be read in two ways is not passed on:", () => {
  for (const [what, wire] of Object.entries(ambiguous)) {
    it(what, async () => {
      const { upstream, gateway } = await start();
      upstream.onData = (socket) => socket.end(wire);
      expectProblem(await gateway.send({ method: "GET", key: null }), 502, "upstream-unanswered");
      expectProblem(await gateway.send(), 502, "upstream-unanswered");
      expect(await gateway.settled()).toBe("unknown");
    });
  }

  it("and what comes after an answer is not taken for the next one's", async () => {
    const { upstream, gateway } = await start();
    upstream.onData = (socket) => socket.write(answerText("done") + answerText("forged"));
    for (const key of ["a", "b", "c"]) {
      const { status, text } = await gateway.send({ key });
      if (status === 201) expect(text).toBe("done");
      else expect(status).toBe(502);
    }
  });
});
