import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import type { Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { adminHandler } from "../admin/admin.ts";
import type { LiveEventView } from "../admin/views.ts";
import { ConfigError } from "../core/errors.ts";
import { scopeOf } from "../core/scope.ts";
import { createLatchkey } from "../latchkey.ts";
import { sqliteStore } from "../stores/sqlite/store.ts";
import { type Listening, listen } from "./listen.ts";
import { Network } from "./network.ts";
import { pageFiles } from "./page-files.ts";
import { Payments } from "./payments.ts";
import { shop } from "./payments-api.ts";
import { type FromPayments, PaymentsSupervisor } from "./payments-supervisor.ts";
import { consolePath, playgroundServer } from "./playground-server.ts";
import { startProvider } from "./provider.ts";

export interface DemoOptions {
  /** Where the page is. One that is given must be free; without it, it is 4500, or any port if that is taken. */
  readonly port?: number;
  /** Where the SQLite file goes, and stays; without it, a temporary folder that is removed at the end. */
  readonly folder?: string;
  readonly log?: (line: string) => void;
}

export interface RunningDemo {
  readonly url: string;
  /** Ends every process and connection, and removes what is not to be kept. */
  close(): Promise<void>;
}

const portDefault = 4500;

/**
 * Starts the playground: a page, a payments API in a process of its own, a fake provider, the workers and the console.
 */
export async function startDemo(options: DemoOptions = {}): Promise<RunningDemo> {
  const { log = () => {} } = options;
  const folder = options.folder ?? (await mkdtemp(join(tmpdir(), "latchkey-demo-")));
  await mkdir(folder, { recursive: true });
  const databasePath = join(folder, "demo.db");
  const ending: (() => unknown)[] = [];
  const close = async () => {
    // The last to be started is the first to end.
    for (const end of ending.splice(0).reverse()) await end();
  };
  if (options.folder === undefined) ending.push(() => rm(folder, { recursive: true, force: true }));
  try {
    // Opened here too, for the console: any number of processes may share the file.
    const latchkey = createLatchkey({ store: sqliteStore(databasePath), tenant: () => shop });
    ending.push(() => latchkey.close());

    const payments = new Payments();
    const listeners = new Set<(event: LiveEventView) => void>();
    const provider = await startProvider({
      faults: (order) => payments.faults(order),
      trace: (order, entry) => payments.add(order, entry),
      killPayments: () => supervisor.kill(),
    });
    ending.push(() => provider.close());

    const onMessage = (message: Exclude<FromPayments, { kind: "listening" }>, pid: number): void => {
      if (message.kind === "handler") {
        const { at, order, request, state } = message;
        if (state === "begun") payments.add(order, { at, kind: "handler-begun", request, pid });
        else payments.add(order, { at, kind: "handler-ended", request, how: state });
        return;
      }
      const { event } = message;
      for (const listener of listeners) listener(event);
      const order = event.key === null ? undefined : payments.orderOf(event.key);
      if (order === undefined) return;
      const { at, type, outcome, detail } = event;
      payments.add(order, { at, kind: "latchkey", type, outcome, detail });
    };
    const supervisor = new PaymentsSupervisor({
      databasePath,
      providerUrl: provider.url,
      onMessage,
      onProcess(what, pid) {
        const at = Date.now();
        const entry = { at, kind: "process", pid, what } as const;
        payments.tellProcess(supervisor.state, entry);
        if (what !== "started") payments.endHandlers(at);
      },
    });
    await supervisor.start();
    ending.push(() => supervisor.end());

    const token = randomBytes(24).toString("base64url");
    const admin = adminHandler(latchkey, {
      operators: [{ name: "playground", token }],
      path: consolePath,
      role: "playground",
      events(listener) {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    });
    ending.push(() => admin.close());
    const server = playgroundServer({
      payments,
      network: new Network(payments, () => supervisor.port),
      view: () => ({
        payments: payments.views(),
        process: supervisor.state,
        operatorToken: token,
        scope: scopeOf({ tenant: shop, policy: "tenant", method: "", path: "" }),
      }),
      async reset() {
        provider.clear();
        payments.clear();
        await latchkey.forgetTenant({ tenant: shop, by: "playground" });
      },
      page: pageFiles(),
      admin,
    });
    const listening = await listenWhereAsked(server, options.port, log);
    ending.push(() => listening.close());
    return { url: listening.url, close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function listenWhereAsked(
  server: Server,
  port: number | undefined,
  log: (line: string) => void,
): Promise<Listening> {
  try {
    return await listen(server, { port: port ?? portDefault });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
    if (port !== undefined) {
      throw new ConfigError(
        `port ${port} is taken: choose another one, or leave it out for one that is free`,
      );
    }
    log(`Port ${portDefault} is taken, so the playground uses another one.`);
    return listen(server, { port: 0 });
  }
}
