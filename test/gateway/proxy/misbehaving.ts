import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";

/** A service that speaks TCP and nothing else: the test says, byte by byte, how it misbehaves. */
export class Misbehaving {
  readonly server: Server;
  /** Everything that was ever sent to it, by connection. */
  readonly heard: string[] = [];
  readonly sockets: Socket[] = [];
  /** Called with each piece that comes, and with all that came over its connection so far. */
  onData: (socket: Socket, heard: string) => void = () => {};
  onConnection: (socket: Socket) => void = () => {};

  private constructor() {
    this.server = createServer((socket) => {
      const index = this.heard.push("") - 1;
      this.sockets.push(socket);
      socket.on("error", () => {});
      socket.on("data", (data) => {
        this.heard[index] += data.toString("latin1");
        this.onData(socket, this.heard[index] ?? "");
      });
      this.onConnection(socket);
    });
  }

  static async start(): Promise<Misbehaving> {
    const one = new Misbehaving();
    one.server.listen(0, "127.0.0.1");
    await once(one.server, "listening");
    return one;
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  get address(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** How many requests of this method were begun to be sent here. */
  requests(method = "POST"): number {
    return this.heard.join("\n").split(`${method} /`).length - 1;
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    if (!this.server.listening) return;
    this.server.close();
    await once(this.server, "close");
  }
}

/** A whole answer. */
export function answerText(body: string, head = ""): string {
  return `HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\ncontent-length: ${body.length}\r\n${head}\r\n${body}`;
}
