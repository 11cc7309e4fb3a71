import { once } from "node:events";
import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { expectProblem } from "../../adapters/assertions.ts";
import { speak } from "../../adapters/client.ts";
import { until } from "../../adapters/harness.ts";
import { closesAfterwards, Gateway } from "./gateway.ts";
import { answerText, Misbehaving } from "./misbehaving.ts";
import { accept, Client, echo, handshake, key, switched } from "./websocket-client.ts";

async function start() {
  const upstream = closesAfterwards(await Misbehaving.start());
  const gateway = await Gateway.start({ upstream: upstream.address });
  return { upstream, gateway };
}

describe("a request for websockets", () => {
  it("is passed on, and then every byte is, both ways", async () => {
    const { upstream, gateway } = await start();
    upstream.onData = echo;
    const client = new Client(gateway.port, handshake("x-forwarded-for: 10.0.0.1\r\n"));
    await client.hears("\r\n\r\n");
    expect(client.heard).toMatch(
      /^HTTP\/1\.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n/,
    );
    expect(client.heard).toContain(`sec-websocket-accept: ${accept}\r\n`);
    expect(client.heard).not.toContain("timeout=9");
    const [sent] = upstream.heard;
    expect(sent).toContain("GET /socket?room=1 HTTP/1.1\r\n");
    expect(sent).toContain("\r\nconnection: upgrade\r\nupgrade: websocket\r\n");
    expect(sent?.match(/connection:/g)).toHaveLength(1);
    expect(sent).toContain(`sec-websocket-key: ${key}\r\n`);
    expect(sent).not.toContain("10.0.0.1");
    client.socket.write("hello");
    await client.hears("HELLO");
    upstream.sockets[0]?.write("unasked");
    await client.hears("unasked");
  });

  it("may bring its first bytes along", async () => {
    const { upstream, gateway } = await start();
    upstream.onData = (socket, heard) => {
      if (heard.endsWith("\r\n\r\n")) socket.write(switched);
      if (heard.endsWith("early")) socket.write("got it");
    };
    const client = new Client(gateway.port, `${handshake()}early`);
    await client.hears("got it");
  });

  it("that the service refuses gets its answer, and nothing is joined", async () => {
    const { upstream, gateway } = await start();
    upstream.onData = (socket) =>
      void socket.write(
        "HTTP/1.1 426 Upgrade Required\r\nsec-websocket-version: 14\r\ncontent-length: 4\r\n\r\nnope",
      );
    const heard = await speak(gateway.port, handshake());
    expect(heard).toMatch(/^HTTP\/1\.1 426 /);
    expect(heard).toContain("sec-websocket-version: 14\r\n");
    expect(heard).toMatch(/connection: close/i);
    expect(heard).toMatch(/\r\n\r\nnope$/);
  });

  it("is answered where nobody listens, where no answer comes, and where it is refused", async () => {
    const { upstream, gateway } = await start();
    upstream.onData = (socket) => socket.resetAndDestroy();
    expect(await speak(gateway.port, handshake())).toMatch(/^HTTP\/1\.1 502 /);
    await upstream.close();
    expect(await speak(gateway.port, handshake())).toMatch(/^HTTP\/1\.1 503 /);
    expect(await speak(gateway.port, handshake().replace("/socket", "/a/../b"))).toMatch(/^HTTP\/1\.1 400 /);
  });

  it("whose client goes away before it is answered is not left at the service", async () => {
    const { upstream, gateway } = await start();
    const client = new Client(gateway.port, handshake());
    await until("it to be sent", () => upstream.requests("GET") === 1);
    const closed = once(upstream.sockets[0] as Socket, "close");
    client.socket.resetAndDestroy();
    await closed;
  });
});

/** Resolves when a connection is gone, in good order or not. */
function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once("close", () => resolve()));
}

describe("joined connections", () => {
  async function joined() {
    const { upstream, gateway } = await start();
    upstream.onData = echo;
    const client = new Client(gateway.port, handshake());
    await client.hears("\r\n\r\n");
    return { gateway, client, service: upstream.sockets[0] as Socket };
  }

  it("end with their client, and with their service", async () => {
    const one = await joined();
    const serviceClosed = once(one.service, "close");
    one.client.socket.end();
    await once(one.service.resume(), "end");
    one.service.end();
    await serviceClosed;
    const two = await joined();
    two.service.end();
    await once(two.client.socket.resume(), "end");
  });

  it("break when one of them breaks", async () => {
    const one = await joined();
    const serviceClosed = closed(one.service);
    one.client.socket.resetAndDestroy();
    await serviceClosed;
    const two = await joined();
    const clientClosed = closed(two.client.socket);
    two.service.resetAndDestroy();
    await clientClosed;
  });

  it("do not stay half open for ever", { timeout: 15_000 }, async () => {
    const { client, service } = await joined();
    // The client has ended, and the service goes on as if it had not.
    service.allowHalfOpen = true;
    const serviceClosed = closed(service);
    client.socket.end();
    const talking = setInterval(() => service.write("still here"), 100);
    await serviceClosed;
    clearInterval(talking);
  });

  it("are told to end when the gateway is shut down", async () => {
    const { gateway, client, service } = await joined();
    const closing = gateway.close({ drainMs: 1000 });
    await Promise.all([once(client.socket.resume(), "end"), once(service.resume(), "end")]);
    await closing;
  });
});

describe("a request that offers another protocol", () => {
  it("is served as if it had not, and does not pass by its protection", async () => {
    const { upstream, gateway } = await start();
    upstream.onData = (socket) => socket.write(answerText("done"));
    const body = '{"amount":10}';
    const offer = (idempotencyKey: string) =>
      `POST /charges HTTP/1.1\r\nhost: localhost\r\n${idempotencyKey}connection: Upgrade, HTTP2-Settings, close\r\n` +
      `upgrade: h2c\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    expect(await speak(gateway.port, offer(""))).toMatch(/^HTTP\/1\.1 400 [\s\S]*key-missing/);
    expect(upstream.heard.join("")).toBe("");
    const withKey = offer("idempotency-key: key-1\r\n");
    expect(await speak(gateway.port, withKey)).toMatch(/^HTTP\/1\.1 201 [\s\S]*done$/);
    expect(await speak(gateway.port, withKey)).toMatch(/idempotency-replayed: true/i);
    expect(upstream.requests()).toBe(1);
    expect(upstream.heard.join("")).not.toMatch(/h2c|http2-settings/i);
    expect(upstream.heard.join("")).toContain(body);
  });

  it("for websockets with a method that is protected is protected", async () => {
    const { upstream, gateway } = await start();
    upstream.onData = (socket) => socket.write(answerText("done"));
    const wire = handshake("content-length: 0\r\n").replace("GET", "POST").replace("keep-alive", "close");
    expect(await speak(gateway.port, wire)).toMatch(/^HTTP\/1\.1 400 [\s\S]*key-missing/);
    expect(upstream.heard.join("")).toBe("");
    const answer = await gateway.send();
    expect(answer.status).toBe(201);
    expectProblem(await gateway.send({ json: { amount: 11 } }), 422, "key-reused");
  });
});
