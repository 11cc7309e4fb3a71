import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { until } from "../../adapters/harness.ts";
import { closesAfterwards, Gateway } from "./gateway.ts";
import { answerText, Misbehaving } from "./misbehaving.ts";

const get = (path: string) => `GET ${path} HTTP/1.1\r\nhost: localhost\r\n\r\n`;
const upgrade = (to: string, line = "GET /socket") =>
  `${line} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: ${to}\r\nidempotency-key: key-1\r\n` +
  "content-length: 0\r\n\r\n";

/** A service that answers `/now` at once, and everything else when the test does. */
async function start(connections = 10) {
  const upstream = closesAfterwards(await Misbehaving.start());
  upstream.onData = (socket, heard) => {
    if (heard.slice(heard.lastIndexOf("GET ")).startsWith("GET /now")) socket.write(answerText("now"));
  };
  const gateway = await Gateway.start({ upstream: upstream.address, connections });
  return { upstream, gateway };
}

/** Everything at once, over one connection. */
async function pipelined(gateway: Gateway, ...wire: string[]): Promise<{ socket: Socket; heard(): string }> {
  const socket = connect(gateway.port, "127.0.0.1");
  await once(socket, "connect");
  let heard = "";
  socket.setEncoding("latin1").on("data", (data: string) => {
    heard += data;
  });
  socket.on("error", () => {});
  socket.write(wire.join(""));
  return { socket, heard: () => heard };
}

describe("requests that come in one go", () => {
  it("are sent to upstream one after another, and answered in their order", async () => {
    const { upstream, gateway } = await start();
    const { heard } = await pipelined(gateway, get("/first"), get("/now?2"), get("/now?3"));
    await until("the first one to be sent", () => upstream.requests("GET") === 1);
    expect((await gateway.send({ method: "GET", path: "/now", key: null })).text).toBe("now");
    expect(upstream.requests("GET")).toBe(2);
    upstream.sockets[0]?.write(answerText("first"));
    await until("all answers", () => heard().split("201 Created").length === 4);
    expect(heard().match(/first|now/g)).toEqual(["first", "now", "now"]);
  });

  it("hold no connection to upstream when their client goes before their turn", async () => {
    const { upstream, gateway } = await start(1);
    const { socket } = await pipelined(gateway, get("/first"), get("/large"));
    await until("the first one to be sent", () => upstream.requests("GET") === 1);
    socket.destroy();
    expect((await gateway.send({ method: "GET", path: "/now", key: null })).text).toBe("now");
    expect(upstream.heard.join("")).not.toContain("/large");
  });

  it("are not taken without an end", async () => {
    const { upstream, gateway } = await start();
    const { socket } = await pipelined(
      gateway,
      get("/first"),
      ...Array.from({ length: 200 }, () => get("/now")),
    );
    await once(socket, "close");
    await until("the first one to be given up", () => upstream.sockets.every(({ destroyed }) => destroyed));
    expect(upstream.requests("GET")).toBeLessThanOrEqual(1);
  });

  it.each(["websocket", "h2c"])("may not ask for %s behind one that is not answered", async (protocol) => {
    const { upstream, gateway } = await start();
    const line = protocol === "h2c" ? "POST /charges" : "GET /socket";
    const { socket, heard } = await pipelined(gateway, get("/first"), upgrade(protocol, line));
    await once(socket, "close");
    expect(heard()).toBe("");
    expect((await gateway.send({ method: "GET", path: "/now", key: null })).text).toBe("now");
    expect(upstream.heard.join("")).not.toMatch(/socket|charges/);
  });

  it("do not get the refusal of what follows them for an answer", async () => {
    const { upstream, gateway } = await start();
    const { socket, heard } = await pipelined(gateway, get("/first"), "no HTTP at all\r\n\r\n");
    await once(socket, "close");
    expect(heard()).toBe("");
    expect(upstream.requests("GET")).toBeLessThanOrEqual(1);
  });
});

describe("a client that resets its connection", () => {
  it("does not end the process when its upgrade is refused", async () => {
    const { gateway } = await start();
    for (const path of ["/-/latchkey/health", "//twice"]) {
      const { socket } = await pipelined(gateway, upgrade("websocket", `GET ${path}`));
      socket.resetAndDestroy();
      const { socket: later } = await pipelined(gateway, upgrade("websocket", `GET ${path}`));
      await once(later, "data");
      later.resetAndDestroy();
    }
    expect((await gateway.send({ method: "GET", path: "/now", key: null })).text).toBe("now");
  });
});
