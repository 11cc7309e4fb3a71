import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { Transform } from "node:stream";

/** A network between a client and a server that can be made to fail on request. */
export interface TcpProxy {
  readonly port: number;
  /** Resets every open connection on both sides. */
  cut(): void;
  /** Resets every new connection at once, until `accept()`. Open connections go on. */
  refuse(): void;
  accept(): void;
  /** Holds all bytes, ends and resets back without closing anything, until `flow()`. */
  stall(): void;
  flow(): void;
  close(): Promise<void>;
}

export async function startTcpProxy(target: { host: string; port: number }): Promise<TcpProxy> {
  const open = new Set<Socket>();
  const held: (() => void)[] = [];
  let stalled = false;
  let refusing = false;

  /** Does it now, or when the bytes flow again. */
  function whenFlowing(act: () => void): void {
    if (stalled) held.push(act);
    else act();
  }

  // The gate holds one chunk back; the streams' own back-pressure then stops everything behind it.
  function gate(): Transform {
    return new Transform({
      transform: (chunk, _encoding, pass) => whenFlowing(() => pass(null, chunk)),
      flush: (pass) => whenFlowing(() => pass()),
    });
  }

  function forward({ from, to }: { from: Socket; to: Socket }): void {
    open.add(from);
    from.setNoDelay(true);
    from.pipe(gate()).pipe(to);
    // An orderly end travels through the pipe; a broken connection has to be passed on by hand.
    from.on("error", () => whenFlowing(() => to.resetAndDestroy()));
    from.on("close", () => open.delete(from));
  }

  // Half-open sockets, because each direction of a connection ends on its own.
  const server = createServer({ allowHalfOpen: true }, (client) => {
    if (refusing) {
      client.on("error", () => {});
      client.resetAndDestroy();
      return;
    }
    const upstream = connect({ ...target, allowHalfOpen: true });
    forward({ from: client, to: upstream });
    forward({ from: upstream, to: client });
  });

  function cut(): void {
    for (const socket of open) socket.resetAndDestroy();
  }

  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  return {
    port: (server.address() as AddressInfo).port,
    cut,
    refuse() {
      refusing = true;
    },
    accept() {
      refusing = false;
    },
    stall() {
      stalled = true;
    },
    flow() {
      stalled = false;
      for (const act of held.splice(0)) act();
    },
    async close() {
      const closed = once(server, "close");
      server.close();
      cut();
      await closed;
    },
  };
}
