import { once } from "node:events";
import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { open, send, speak } from "../adapters/client.ts";
import { until } from "../adapters/harness.ts";
import { closesAfterwards } from "./proxy/gateway.ts";
import { answerText, Misbehaving } from "./proxy/misbehaving.ts";
import { Client, echo, handshake, switched } from "./proxy/websocket-client.ts";
import { gateway, settingsOf } from "./support.ts";

async function echoing(): Promise<Misbehaving> {
  const upstream = closesAfterwards(await Misbehaving.start());
  upstream.onData = echo;
  return upstream;
}

describe("a websocket", () => {
  async function joined(port: number): Promise<Client> {
    const client = new Client(port, handshake());
    await client.hears("\r\n\r\n");
    return client;
  }

  it("goes on after a reload, while new ones go where it says", async () => {
    const old = await echoing();
    const next = await echoing();
    const { gateway: running } = await gateway(settingsOf(old.address));
    const client = await joined(running.port);

    await running.reload(settingsOf(next.address));
    client.socket.write("still there");
    await client.hears("STILL THERE");
    const later = await joined(running.port);
    later.socket.write("there already");
    await later.hears("THERE ALREADY");

    expect([old.requests("GET"), next.requests("GET")]).toEqual([1, 1]);
  });

  it("of before a reload is told, as all are, when the gateway ends", async () => {
    const old = await echoing();
    const next = await echoing();
    const { gateway: running } = await gateway(settingsOf(old.address));
    const client = await joined(running.port);
    await running.reload(settingsOf(next.address));
    // Whoever forgot it would have done so by the time that others are served.
    await joined(running.port);

    const told = [client.socket, old.sockets[0] as Socket].map((socket) => once(socket.resume(), "end"));
    await running.close({ drainMs: 1_000 });
    await Promise.all(told);
  });
});

describe("a request for websockets is refused, and does not reach the service", () => {
  it("where GET is protected: what is answered once and kept cannot be a websocket", async () => {
    const upstream = await echoing();
    const { gateway: running } = await gateway(
      settingsOf(upstream.address, "routes: [{ path: /socket, methods: [GET] }]\n"),
    );

    expect(await speak(running.port, handshake())).toMatch(/^HTTP\/1\.1 400 /);
    expect(upstream.heard).toEqual([]);
    // And nowhere else.
    await new Client(running.port, handshake("", "/another")).hears("101 Switching Protocols");
  });

  it("on the gateway's own paths", async () => {
    const upstream = await echoing();
    const { gateway: running } = await gateway(
      settingsOf(upstream.address, "statusPath: /status\nmetrics: { path: /metrics, token: scraper }\n"),
    );

    for (const path of ["/-/latchkey/health", "/-/latchkey/nothing", "/metrics", "/status/key-1"]) {
      const heard = await speak(running.port, handshake("", path));
      expect([path, heard.split("\r\n")[0]]).toEqual([path, "HTTP/1.1 400 Bad Request"]);
    }
    expect(upstream.heard).toEqual([]);
  });
});

describe("a client that was refused, and keeps its side of the connection open", () => {
  for (const [who, config] of [
    ["the gateway", "routes: [{ path: /socket, methods: [GET] }]\n"],
    ["the service", ""],
  ] as const) {
    it(`is let go of, when it was refused by ${who}`, async () => {
      const upstream = closesAfterwards(await Misbehaving.start());
      upstream.onData = (socket) => void socket.write(answerText("no"));
      const { gateway: running } = await gateway(settingsOf(upstream.address, config));
      const client = new Client(running.port, handshake());
      await once(client.socket, "end");

      // A connection that was forgotten would be waited for until the time is up.
      const before = performance.now();
      await running.close({ drainMs: 10_000 });
      expect(performance.now() - before).toBeLessThan(5_000);
    });
  }
});

describe("a gateway that drains", () => {
  /** A gateway that waits for a service, and a client that has said half of what it wants before, and the rest since. */
  async function draining(said: string) {
    const upstream = closesAfterwards(await Misbehaving.start());
    const { gateway: running, url } = await gateway(settingsOf(upstream.address));
    const client = new Client(running.port, said.slice(0, said.length / 2));
    await once(client.socket, "connect");
    const waiting = open(url, { method: "PUT", key: null });
    // Connections are taken in their order: the client's is the gateway's by now.
    await until("something to be under way", () => upstream.requests("PUT") === 1);
    const closing = running.close({ drainMs: 10_000 });
    client.socket.write(said.slice(said.length / 2));
    const finish = async () => {
      upstream.sockets[0]?.write(answerText("done"));
      expect((await waiting.response).resume().statusCode).toBe(201);
      await closing;
    };
    return { upstream, client, url, finish };
  }

  it("refuses websockets on connections that it still has", async () => {
    const { upstream, client, finish } = await draining(handshake());

    await client.hears("HTTP/1.1 400 Bad Request");
    expect(upstream.requests("GET")).toBe(0);
    await finish();
  });

  it("tells who was on the way to a websocket as soon as it is one", async () => {
    const upstream = closesAfterwards(await Misbehaving.start());
    const { gateway: running } = await gateway(settingsOf(upstream.address));
    const client = new Client(running.port, handshake());
    await until("it to be asked for", () => upstream.requests("GET") === 1);
    const closing = running.close({ drainMs: 10_000 });
    const told = [client.socket, upstream.sockets[0] as Socket].map((socket) => once(socket.resume(), "end"));
    upstream.sockets[0]?.write(switched);

    await Promise.all(told);
    client.socket.end();
    upstream.sockets[0]?.end();
    await closing;
  });

  it("says so to who asks for its health over a connection that it still has, and takes no other", async () => {
    const asking = "GET /-/latchkey/health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    const { client, url, finish } = await draining(asking);

    await client.hears('{"status":"draining"');
    expect(client.heard).toMatch(/^HTTP\/1\.1 503 /);
    await expect(send(url, { method: "GET", path: "/-/latchkey/health", key: null })).rejects.toThrow(
      /ECONNREFUSED/,
    );
    await finish();
  });
});
