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
  /** New connections go to another server from now on; open ones stay where they are, as behind a name in the DNS. */
  pointTo(target: Target): void;
  /** What is open now hears nothing any more and is never closed, as when its host has vanished. New ones go on. */
  strand(): void;
  close(): Promise<void>;
}

export interface Target {
  readonly host: string;
  readonly port: number;
}

export async function startTcpProxy(firstTarget: Target): Promise<TcpProxy> {
  const open = new Set<Socket>();
  const stranded = new WeakSet<Socket>();
  let target = firstTarget;
  const held: (() => void)[] = [];
  let stalled = false;
  let refusing = false;

  /** Does it now, or when the bytes flow again, or never. */
  function whenFlowing(from: Socket, act: () => void): void {
    if (stranded.has(from)) return;
    if (stalled) held.push(act);
    else act();
  }

  // The gate holds one chunk back; the streams' own back-pressure then stops everything behind it.
  function gate(from: Socket): Transform {
    return new Transform({
      transform: (chunk, _encoding, pass) => whenFlowing(from, () => pass(null, chunk)),
      flush: (pass) => whenFlowing(from, () => pass()),
    });
  }

  function forward({ from, to }: { from: Socket; to: Socket }): void {
    open.add(from);
    from.setNoDelay(true);
    from.pipe(gate(from)).pipe(to);
    // An orderly end travels through the pipe; a broken connection has to be passed on by hand.
    from.on("error", () => whenFlowing(from, () => to.resetAndDestroy()));
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
    pointTo(next) {
      target = next;
    },
    strand() {
      for (const socket of open) stranded.add(socket);
    },
    async close() {
      const closed = once(server, "close");
      server.close();
      cut();
      await closed;
    },
  };
}
