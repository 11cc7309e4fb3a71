import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { Readable } from "node:stream";
import { describe, expect, it } from "vitest";
import { keptConnection, readAnswer, send, speak } from "../../adapters/client.ts";
import { until } from "../../adapters/harness.ts";
import { deferred } from "../../support/deferred.ts";
import { collectGarbage } from "../../support/garbage.ts";
import { closesAfterwards, Gateway } from "./gateway.ts";
import { answerText, Misbehaving } from "./misbehaving.ts";

const mebibyte = 1024 * 1024;

async function behind(serve: (req: IncomingMessage, res: ServerResponse) => void): Promise<Gateway> {
  const server = createServer(serve).listen(0, "127.0.0.1");
  await once(server, "listening");
  closesAfterwards({
    close: async () => {
      server.closeAllConnections();
      server.close();
    },
  });
  return Gateway.start({ upstream: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
}

/** A body that is made while it is read, so that nobody but the gateway could hold all of it. */
function* largeBody(bytes: number): Generator<Buffer> {
  const piece = Buffer.alloc(64 * 1024, "0123456789abcdef");
  for (let sent = 0; sent < bytes; sent += piece.byteLength) yield piece;
}

async function digest(stream: AsyncIterable<Buffer>): Promise<string> {
  const hash = createHash("sha256");
  for await (const piece of stream) hash.update(piece);
  return hash.digest("hex");
}

/** How much more memory was in use at worst than before, looked at while something goes on. What is only garbage is not. */
async function memoryDuring(work: () => Promise<void>): Promise<number> {
  const before = memoryInUse();
  let most = 0;
  const watch = setInterval(() => {
    most = Math.max(most, memoryInUse() - before);
  }, 20);
  await work();
  clearInterval(watch);
  return most;
}

function memoryInUse(): number {
  collectGarbage();
  const { external, heapUsed } = process.memoryUsage();
  return external + heapUsed;
}

describe("a body of 50 MB on an unprotected route", () => {
  const bytes = 50 * mebibyte;
  const atOnce = 3;

  it("goes up whole, and is not held in memory", async () => {
    const expected = await digest(Readable.from(largeBody(bytes)));
    const gateway = await behind((req, res) => void digest(req).then((hash) => res.end(hash)));
    for (const headers of [{ "content-length": String(bytes) }, { "transfer-encoding": "chunked" }]) {
      const most = await memoryDuring(async () => {
        const answers = Array.from({ length: atOnce }, async () => {
          const sent = request(gateway.origin, { method: "PUT", headers, agent: false });
          Readable.from(largeBody(bytes)).pipe(sent);
          const [response] = (await once(sent, "response")) as [IncomingMessage];
          return (await readAnswer(response)).text;
        });
        expect(await Promise.all(answers)).toEqual(answers.map(() => expected));
      });
      expect(most).toBeLessThan((atOnce * bytes) / 2);
    }
  });

  it("comes down whole, and is not held in memory", async () => {
    const expected = await digest(Readable.from(largeBody(bytes)));
    const gateway = await behind((_req, res) => void Readable.from(largeBody(bytes)).pipe(res));
    const most = await memoryDuring(async () => {
      const digests = Array.from({ length: atOnce }, async () =>
        digest(await gateway.open({ method: "GET", key: null }).response),
      );
      expect(await Promise.all(digests)).toEqual(digests.map(() => expected));
    });
    expect(most).toBeLessThan((atOnce * bytes) / 2);
  });

  it("waits for a client that does not read", async () => {
    let made = 0;
    const gateway = await behind((_req, res) => {
      const source = Readable.from(
        (function* () {
          for (const piece of largeBody(bytes)) {
            made += piece.byteLength;
            yield piece;
          }
        })(),
      );
      source.pipe(res);
    });
    const response = await gateway.open({ method: "GET", key: null }).response;
    response.pause();
    await settledAt(() => made);
    expect(made).toBeLessThan(bytes / 2);
    expect((await readAnswer(response)).body.byteLength).toBe(bytes);
  });

  it("waits for a service that does not read", async () => {
    const go = deferred();
    let received = 0;
    const gateway = await behind((req, res) => {
      void go.then(() => {
        req.on("data", (piece: Buffer) => {
          received += piece.byteLength;
        });
        req.on("end", () => res.end("ok"));
      });
    });
    let made = 0;
    const sent = gateway.open({
      method: "PUT",
      key: null,
      chunks: (function* () {
        for (const piece of largeBody(bytes)) {
          made += piece.byteLength;
          yield piece;
        }
      })(),
    });
    await settledAt(() => made);
    expect(made).toBeLessThan(bytes / 2);
    go.resolve();
    expect((await readAnswer(await sent.response)).text).toBe("ok");
    expect(received).toBe(bytes);
  });
});

/** Waits until a number has not grown for a while: whoever makes it grow is being held back. */
async function settledAt(number: () => number): Promise<void> {
  let last = -1;
  while (number() === 0 || last !== number()) {
    last = number();
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

describe("what upstream sends", () => {
  it("is passed on as it comes: the head first, then each event", async () => {
    let answer: ServerResponse | undefined;
    const gateway = await behind((_req, res) => {
      answer = res;
      res.writeHead(200, { "content-type": "text/event-stream" });
      res.flushHeaders();
    });
    const response = await gateway.open({ method: "GET", key: null }).response;
    expect(response.headers["content-type"]).toBe("text/event-stream");
    for (const event of ["data: one\n\n", "data: two\n\n"]) {
      const heard = once(response, "data");
      answer?.write(event);
      expect(String((await heard)[0])).toBe(event);
    }
    answer?.end();
    await once(response.resume(), "end");
  });

  it("may be silent for as long as it likes where the client asked for events", async () => {
    const upstream = closesAfterwards(await Misbehaving.start());
    upstream.onData = (socket) =>
      void socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\none\n\r\n");
    const gateway = await Gateway.start({ upstream: upstream.address, bodyTimeoutMs: 100 });
    const headers = { accept: "text/event-stream" };
    const patient = await gateway.open({ method: "GET", key: null, headers }).response;
    const other = await gateway.open({ method: "GET", key: null }).response;
    other.resume();
    patient.on("data", () => {});
    // The one that did not ask for events is cut; by then the other one would have been, too.
    await once(other, "error");
    expect(patient.destroyed).toBe(false);
    const socket = upstream.sockets.find((one) => !one.destroyed);
    socket?.write("4\r\ntwo\n\r\n0\r\n\r\n");
    await once(patient, "end");
  });

  it("keeps its trailers, without those that would change how it is read", async () => {
    const upstream = closesAfterwards(await Misbehaving.start());
    upstream.onData = (socket) =>
      void socket.write(
        "HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n" +
          "x-sum: 42\r\nset-cookie: a=b\r\n\r\n",
      );
    const gateway = await Gateway.start({ upstream: upstream.address });
    const response = await gateway.open({ method: "GET", key: null }).response;
    const { text } = await readAnswer(response);
    expect(text).toBe("done");
    expect(response.headers.trailer).toBeUndefined();
    expect(response.trailers).toEqual({ "x-sum": "42" });
  });

  it("may begin with hints, and 103 is passed on", async () => {
    const gateway = await behind((_req, res) => {
      res.writeEarlyHints({ link: "</style.css>; rel=preload; as=style" });
      res.end("done");
    });
    const { request: sent, response } = gateway.open({ method: "GET", key: null });
    const hints: unknown[] = [];
    sent.on("information", (info: { statusCode: number; headers: unknown }) =>
      hints.push([info.statusCode, info.headers]),
    );
    expect((await readAnswer(await response)).text).toBe("done");
    expect(hints).toEqual([[103, { link: "</style.css>; rel=preload; as=style" }]]);
  });

  it("has no body where there is none: HEAD, 204 and 304", async () => {
    const gateway = await behind((req, res) => {
      if (req.method === "HEAD") res.writeHead(200, { "content-length": "1000" }).end();
      else res.writeHead(Number(req.url?.slice(1)), { etag: '"a"' }).end();
    });
    const head = await gateway.send({ method: "HEAD", key: null, body: "" });
    expect(head).toMatchObject({ status: 200, text: "" });
    expect(head.headers["content-length"]).toBe("1000");
    for (const status of [204, 304]) {
      const answer = await gateway.send({ method: "GET", path: `/${status}`, key: null });
      expect(answer).toMatchObject({ status, text: "" });
      expect(answer.headers["transfer-encoding"]).toBeUndefined();
      expect(answer.headers.etag).toBe('"a"');
    }
  });

  it("comes before all of a body was read, and reaches its client", async () => {
    const gateway = await behind((_req, res) => {
      res.writeHead(413, { connection: "close", "content-length": "9" }).end("too large");
    });
    const never = new Promise<void>(() => {});
    const sent = gateway.open({
      method: "PUT",
      key: null,
      chunks: (async function* () {
        yield "a beginning";
        await never;
      })(),
    });
    const response = await sent.response;
    expect(response.headers.connection).toBe("close");
    expect(await readAnswer(response)).toMatchObject({ status: 413, text: "too large" });
  });
});

describe("a client", () => {
  it("that waits to be asked for its body is asked", async () => {
    const gateway = await behind((req, res) => void digest(req).then((hash) => res.end(hash)));
    for (const method of ["PUT", "POST"]) {
      const sent = request(gateway.origin, {
        method,
        headers: { expect: "100-continue", "idempotency-key": "k", "content-length": "4" },
      });
      sent.flushHeaders();
      await once(sent, "continue");
      sent.end("body");
      const [response] = (await once(sent, "response")) as [IncomingMessage];
      expect((await readAnswer(response)).text).toBe(await digest(Readable.from([Buffer.from("body")])));
    }
  });

  it("that goes away takes its unprotected request with it, and no other", async () => {
    const upstream = closesAfterwards(await Misbehaving.start());
    const gateway = await Gateway.start({ upstream: upstream.address });
    const exchange = gateway.open({ method: "GET", key: null });
    await until("it to be sent", () => upstream.requests("GET") === 1);
    const closed = once(upstream.sockets[0] as NodeJS.EventEmitter, "close");
    exchange.abort();
    await closed;
    upstream.onData = (socket) => socket.write(answerText("done"));
    expect((await gateway.send()).status).toBe(201);
  });

  it("that takes in nothing of its answer does not hold the connection to upstream for ever", async () => {
    const upstream = closesAfterwards(await Misbehaving.start());
    const large = "x".repeat(20_000_000);
    upstream.onData = (socket, heard) =>
      void socket.write(answerText(heard.includes("/large") ? large : "done"));
    const gateway = await Gateway.start(
      { upstream: upstream.address, connections: 1 },
      { listen: { sendTimeoutMs: 200 } },
    );
    const stalled = gateway.open({ method: "GET", key: null, path: "/large" });
    await stalled.response;
    const start = performance.now();
    expect((await gateway.send({ method: "GET", key: null, path: "/next" })).text).toBe("done");
    expect(performance.now() - start).toBeGreaterThan(100);
    stalled.abort();
  });

  it("that waits for longer than that for upstream gets its answer", async () => {
    const upstream = closesAfterwards(await Misbehaving.start());
    const gateway = await Gateway.start({ upstream: upstream.address }, { listen: { sendTimeoutMs: 50 } });
    const answers = [gateway.send(), gateway.send({ method: "GET", key: null })];
    await until("both to be sent", () => upstream.requests() + upstream.requests("GET") === 2);
    await new Promise((resolve) => setTimeout(resolve, 200));
    for (const socket of upstream.sockets) socket.write(answerText("done"));
    for (const answer of answers) expect((await answer).text).toBe("done");
  });

  it("that is idle between two requests is let go after a while, with or without an answer before", async () => {
    const upstream = closesAfterwards(await Misbehaving.start());
    upstream.onData = (socket) => socket.write(answerText("done"));
    const gateway = await Gateway.start(
      { upstream: upstream.address },
      { listen: { keepAliveTimeoutMs: 100, sendTimeoutMs: 300 } },
    );
    expect(await speak(gateway.port, "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")).toMatch(/done$/);
    expect(await speak(gateway.port, "")).toBe("");
  });

  it("whose protected answer is broken off, because its time is up, leaves no connection to upstream", async () => {
    const upstream = closesAfterwards(await Misbehaving.start());
    upstream.onData = (socket) => void socket.write(answerText("x".repeat(1000)).slice(0, -10));
    const gateway = await Gateway.start(
      { upstream: upstream.address },
      { policy: { streaming: true, executionTimeoutMs: 200 } },
    );
    await expect(gateway.send()).rejects.toThrow();
    expect(await gateway.settled()).toBe("unknown");
    await until("upstream to be let go", () => upstream.sockets[0]?.destroyed === true);
    expect(upstream.requests()).toBe(1);
  });

  it("that goes away while its request waits for a connection: it is not sent at all", async () => {
    const upstream = closesAfterwards(await Misbehaving.start());
    const gateway = await Gateway.start({ upstream: upstream.address, connections: 1 });
    const first = gateway.send({ method: "GET", key: null, path: "/first" });
    await until("the first to be sent", () => upstream.requests("GET") === 1);
    const second = gateway.open({ method: "DELETE", key: null, path: "/second" });
    await once(second.request, "socket");
    await until("the second to arrive", () => (second.request.socket?.bytesWritten ?? 0) > 0);
    await new Promise((resolve) => setTimeout(resolve, 20));
    second.abort();
    await new Promise((resolve) => setTimeout(resolve, 20));
    upstream.onData = (socket) => socket.write(answerText("done"));
    upstream.sockets[0]?.write(answerText("done"));
    expect((await first).status).toBe(201);
    expect((await gateway.send({ method: "GET", key: null, path: "/third" })).status).toBe(201);
    expect(upstream.requests("DELETE")).toBe(0);
  });
});

describe("what is said about the way", () => {
  const heardBy = async (wire: string, options = {}) => {
    const upstream = closesAfterwards(await Misbehaving.start());
    upstream.onData = (socket) =>
      void socket.write(
        answerText(
          "done",
          "connection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=9\r\nproxy-authenticate: Basic\r\nx-kept: 1\r\n",
        ),
      );
    const gateway = await Gateway.start({ upstream: `${upstream.address}/base/`, ...options });
    const answer = await speak(
      gateway.port,
      wire.replace("\r\n\r\n", "\r\nconnection: close, private\r\n\r\n"),
    );
    return { sent: upstream.heard.join(""), answer };
  };
  const wire =
    "GET /a HTTP/1.1\r\nhost: Example.org:81\r\nprivate: 1\r\nte: trailers\r\nproxy-authorization: secret\r\n" +
    "x-forwarded-for: 10.0.0.1\r\nx-forwarded-proto: https\r\nx-forwarded-port: 9\r\nforwarded: for=10.0.0.1\r\n" +
    "x-real-ip: 10.0.0.1\r\nvia: 1.0 other\r\nlatchkey-dispatch: 1\r\nX-Kept: 1\r\ncookie: a=b\r\n\r\n";

  it("is not passed on where it is about one connection", async () => {
    const { sent, answer } = await heardBy(wire);
    expect(sent).toMatch(/^GET \/base\/a HTTP\/1.1\r\nhost: Example.org:81\r\nconnection: keep-alive\r\n/);
    for (const name of ["private", "te", "proxy-authorization", "latchkey-dispatch"]) {
      expect(sent).not.toMatch(new RegExp(`^${name}:`, "im"));
    }
    for (const name of ["x-hop", "proxy-authenticate"])
      expect(answer).not.toMatch(new RegExp(`^${name}:`, "im"));
    expect(answer).not.toContain("timeout=9");
    expect(sent).toContain("\r\nX-Kept: 1\r\ncookie: a=b\r\n");
    expect(answer).toMatch(/\r\nx-kept: 1\r\nvia: 1\.1 latchkey\r\n/);
  });

  it("replaces what a client says about who it is", async () => {
    const { sent } = await heardBy(wire);
    expect(sent).not.toContain("10.0.0.1");
    expect(sent).toContain("\r\nx-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\n");
    expect(sent).toContain('\r\nforwarded: for=127.0.0.1;proto=http;host="Example.org:81"\r\n');
    expect(sent).not.toContain("x-forwarded-port");
    expect(sent).toContain("\r\nvia: 1.0 other, 1.1 latchkey\r\n");
  });

  it("adds to what a trusted proxy says", async () => {
    const { sent } = await heardBy(wire, { trustForwarded: true });
    expect(sent).toContain("\r\nx-forwarded-for: 10.0.0.1, 127.0.0.1\r\nx-forwarded-proto: https\r\n");
    expect(sent).toContain('\r\nforwarded: for=10.0.0.1, for=127.0.0.1;proto=http;host="Example.org:81"\r\n');
    expect(sent).toContain("\r\nx-forwarded-port: 9\r\n");
  });

  it("has the service's own name where that is asked for", async () => {
    const { sent } = await heardBy(wire, { host: "upstream" });
    expect(sent).toMatch(/^GET \/base\/a HTTP\/1.1\r\nhost: 127\.0\.0\.1:\d+\r\n/);
    expect(sent).toContain("\r\nx-forwarded-host: Example.org:81\r\n");
  });
});

it("a gateway that is shut down ends idle connections at once, and waits for what runs", async () => {
  const go = deferred();
  let arrived = 0;
  const gateway = await behind((req, res) => {
    arrived += 1;
    void (req.method === "PUT" ? go : Promise.resolve()).then(() => res.end("done"));
  });
  const idle = connect(gateway.port, "127.0.0.1");
  idle.write("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
  await once(idle, "data");
  const { origin } = gateway;
  const agent = keptConnection();
  const running = gateway.send({ method: "PUT", key: null, agent });
  await until("it to arrive", () => arrived === 2);
  const begun = performance.now();
  const drained = gateway.close({ drainMs: 30_000 });
  await once(idle.resume(), "close");
  await expect(send(origin, { method: "GET", key: null })).rejects.toThrow("ECONNREFUSED");
  go.resolve();
  expect((await running).text).toBe("done");
  await drained;
  // Not when the time is over: a connection that is kept is ended after its last answer.
  expect(performance.now() - begun).toBeLessThan(15_000);
  agent.destroy();
});
