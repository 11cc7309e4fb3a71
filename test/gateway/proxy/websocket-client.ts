import { createHash } from "node:crypto";
import { connect, type Socket } from "node:net";
import { until } from "../../adapters/harness.ts";
import { closesAfterwards } from "./gateway.ts";

export const key = "dGhlIHNhbXBsZSBub25jZQ==";
export const accept = createHash("sha1")
  .update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
  .digest("base64");

/** What a client asks with; `path` is what for. */
export function handshake(fields = "", path = "/socket?room=1"): string {
  return (
    `GET ${path} HTTP/1.1\r\nhost: localhost\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n` +
    `sec-websocket-version: 13\r\nsec-websocket-key: ${key}\r\n${fields}\r\n`
  );
}

/** How a service agrees. */
export const switched =
  `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${accept}\r\n` +
  "keep-alive: timeout=9\r\n\r\n";

/** Switches, and then sends everything back in capitals. */
export function echo(socket: Socket, heard: string): void {
  if (heard.endsWith("\r\n\r\n") && heard.startsWith("GET ")) {
    socket.write(switched);
    return;
  }
  socket.write(heard.slice(heard.lastIndexOf("\r\n\r\n") + 4).toUpperCase());
}

/** A client with everything that it has heard. */
export class Client {
  readonly socket: Socket;
  heard = "";

  constructor(port: number, wire: string) {
    this.socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true }, () => this.socket.write(wire));
    this.socket.setEncoding("latin1").on("data", (data: string) => {
      this.heard += data;
    });
    this.socket.on("error", () => {});
    closesAfterwards({
      close: async () => {
        this.socket.destroy();
      },
    });
  }

  hears(text: string): Promise<void> {
    return until(`the client to hear "${text}"`, () => this.heard.includes(text));
  }
}
