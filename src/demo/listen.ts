import { once } from "node:events";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";

export interface Listening {
  readonly url: string;
  readonly port: number;
  /** Ends it with every connection. */
  close(): Promise<void>;
}

/** Only for this machine: the playground moves no money, but it is nobody else's business either. */
const host = "127.0.0.1";

export async function listen(server: Server, options: { readonly port: number }): Promise<Listening> {
  server.listen(options.port, host);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://${host}:${port}`,
    port,
    async close() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
