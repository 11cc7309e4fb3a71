import type { AddressInfo } from "node:net";
import { connect, createServer, type Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { lastingSocket } from "../../src/http/lasting-socket.ts";

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

/** The server's side of a connection whose client has gone. */
async function abandonedSocket(): Promise<Socket> {
  const server = createServer();
  closing.push(() => server.close());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const accepted = new Promise<Socket>((resolve) => server.once("connection", resolve));
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const socket = await accepted;
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.resume();
  client.destroy();
  await closed;
  return socket;
}

describe("a connection that must not be seen to end", () => {
  it("looks alive after its client has gone, and is the same in everything else", async () => {
    const socket = await abandonedSocket();
    const lasting = lastingSocket(socket);
    expect([socket.readable, socket.writable]).toEqual([false, false]);
    expect([lasting.readable, lasting.writable]).toEqual([true, true]);
    expect(lasting.destroyed).toBe(true);
    expect(lasting.bytesRead).toBe(socket.bytesRead);
    expect(lasting.setTimeout(0)).toBe(socket);
  });

  it("is one and the same for all requests on it", async () => {
    const socket = await abandonedSocket();
    expect(lastingSocket(socket)).toBe(lastingSocket(socket));
  });
});
