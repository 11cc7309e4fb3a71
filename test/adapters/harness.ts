import type { Agent, Server } from "node:http";
import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import {
  createLatchkey,
  type Latchkey,
  type LatchkeyEvent,
  type LatchkeyOptions,
  type PolicyInput,
  type Store,
} from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import type { Fault, FaultyStore } from "../../src/testing/index.ts";
import { type Application, type Framework, type Handler, json, type Kind, portOf } from "./application.ts";
import { type Answer, keptConnection, type OpenExchange, open, type Sending, send } from "./client.ts";
import { Faults, serverLikeStore } from "./server-like-store.ts";

/** One behaviour, the same for every adapter. An adapter that cannot have it says why, as data. */
export interface Case {
  readonly name: string;
  readonly except?: Partial<Record<Kind | "parserFirst", string>>;
  run(trial: Trial): Promise<void>;
}

/** Runs every case against one framework. An exemption is shown with its reason, never left out. */
export function describeAdapter(
  framework: Framework,
  topics: Readonly<Record<string, readonly Case[]>>,
): void {
  describe(framework.name, () => {
    for (const [topic, cases] of Object.entries(topics)) {
      describe(topic, () => {
        for (const one of cases) registerCase(framework, one);
      });
    }
  });
}

/** One case as one test, under its own name or another. */
export function registerCase(framework: Framework, one: Case, name = one.name): void {
  const reason = exemption(framework, one);
  it(name, async (context) => {
    if (reason !== undefined) context.skip(reason);
    const trial = new Trial(framework);
    try {
      await one.run(trial);
      await trial.assertNothingStray();
    } finally {
      await trial.close();
    }
  });
}

function exemption(framework: Framework, { except = {} }: Case): string | undefined {
  return except[framework.kind] ?? (framework.parserFirst ? except.parserFirst : undefined);
}

export interface SiteOptions {
  /** Answers at `/charges`. */
  readonly handler?: Handler;
  readonly routes?: Application["routes"];
  readonly policy?: Application["policy"];
  readonly routeTenant?: NonNullable<Application["routeTenant"]>;
  readonly routeBinding?: NonNullable<Application["routeBinding"]>;
  readonly mount?: Application["mount"];
  readonly parse?: boolean;
  readonly latchkey?: Partial<Omit<LatchkeyOptions, "store">> & PolicyInput;
  /** The store's clock. */
  readonly clock?: () => number;
  /** In place of one in memory that behaves as a server would. */
  readonly store?: Store;
}

/** One run of one case: it starts applications and cleans up after them. */
export class Trial {
  readonly framework: Framework;
  readonly #sites: Site[] = [];
  readonly #strays: unknown[] = [];
  readonly #closing: (() => void)[] = [];
  readonly #onStray = (error: unknown) => void this.#strays.push(error);
  readonly #onWarning = (warning: Error) => {
    // Node 22 calls the SQLite that it has built in an experiment.
    const isNodes = warning.name === "ExperimentalWarning" && warning.message.startsWith("SQLite");
    if (warning.message !== this.expectedWarning && !isNodes) this.#strays.push(warning);
  };
  /** A warning that the case causes on purpose. */
  expectedWarning: string | undefined;

  constructor(framework: Framework) {
    this.framework = framework;
    process.on("unhandledRejection", this.#onStray);
    process.on("uncaughtException", this.#onStray);
    process.on("warning", this.#onWarning);
  }

  async start(options: SiteOptions = {}): Promise<Site> {
    const site = await Site.start(this.framework, options);
    this.#sites.push(site);
    return site;
  }

  /** An error that nobody handles ends the process of whoever uses us; a warning tells of a leak, or of a mistake. */
  async assertNothingStray(): Promise<void> {
    // Rejections that nobody handles are reported once the event loop has come round.
    await new Promise((resolve) => setImmediate(resolve));
    expect(this.#strays).toEqual([]);
  }

  /** Called after every site is closed. */
  onClose(run: () => void): void {
    this.#closing.push(run);
  }

  async close(): Promise<void> {
    await Promise.all(this.#sites.map((site) => site.close()));
    for (const run of this.#closing) run();
    process.off("unhandledRejection", this.#onStray);
    process.off("uncaughtException", this.#onStray);
    process.off("warning", this.#onWarning);
  }
}

/** A running application with everything that a case looks at. */
export class Site {
  readonly latchkey: Latchkey;
  readonly store: FaultyStore;
  readonly events: LatchkeyEvent[] = [];
  readonly origin: string;
  readonly port: number;
  /** How often a handler ran. */
  executions = 0;
  readonly #server: Server;
  readonly #faults: Faults;
  readonly #agent: Agent = keptConnection();
  #connections = 0;
  #lastConnection: Socket | undefined;

  private constructor(parts: { latchkey: Latchkey; store: FaultyStore; server: Server; faults: Faults }) {
    this.latchkey = parts.latchkey;
    this.store = parts.store;
    this.#server = parts.server;
    this.#faults = parts.faults;
    this.port = portOf(parts.server);
    this.origin = `http://127.0.0.1:${this.port}`;
    this.latchkey.subscribe((event) => this.events.push(event));
    this.#server.on("connection", (socket) => {
      this.#connections += 1;
      this.#lastConnection = socket;
      socket.on("close", () => {
        this.#connections -= 1;
      });
    });
  }

  static async start(framework: Framework, options: SiteOptions): Promise<Site> {
    const { handler = () => json(201, { charged: 10 }), policy = {}, clock } = options;
    const faults = new Faults();
    const store = serverLikeStore(faults, options.store ?? memoryStore(clock === undefined ? {} : { clock }));
    const latchkey = createLatchkey({ tenant: "single", ...options.latchkey, store });
    let count = () => {};
    const routes: Record<string, Handler> = {};
    for (const [path, run] of Object.entries(options.routes ?? { "/charges": handler })) {
      routes[path] = (visit) => {
        count();
        return run(visit);
      };
    }
    const server = await framework.start({
      latchkey,
      policy,
      routes,
      routeTenant: options.routeTenant,
      routeBinding: options.routeBinding,
      mount: options.mount ?? "route",
      parse: options.parse ?? true,
    });
    const site = new Site({ latchkey, store, server, faults });
    count = () => {
      site.executions += 1;
    };
    return site;
  }

  /** How many bytes have come over the connection that was opened last. */
  get received(): number {
    return this.#lastConnection?.bytesRead ?? 0;
  }

  /** Over a connection of its own, unless the sending says otherwise. */
  send(sending: Sending = {}): Promise<Answer> {
    return send(this.origin, sending);
  }

  /** Over one and the same connection, as long as the server keeps it. */
  sendKept(sending: Sending = {}): Promise<Answer> {
    return send(this.origin, { ...sending, agent: this.#agent });
  }

  open(sending: Sending = {}): OpenExchange {
    return open(this.origin, sending);
  }

  /** Decides from now on what becomes of each call of the store. */
  breakStore(choose: (verb: string) => Fault): void {
    this.#faults.choose = choose;
  }

  repairStore(): void {
    this.#faults.repair();
  }

  /** Resolves once such an event has happened, now or earlier. */
  async happened<Type extends LatchkeyEvent["type"]>(
    type: Type,
    matches: (event: Extract<LatchkeyEvent, { type: Type }>) => boolean = () => true,
  ): Promise<void> {
    await until(`an event "${type}"`, () =>
      this.events.some(
        (event) => event.type === type && matches(event as Extract<LatchkeyEvent, { type: Type }>),
      ),
    );
  }

  /** Resolves once the server has noticed that every client is gone. */
  async disconnected(): Promise<void> {
    await until("all connections to be closed", () => this.#connections === 0);
    // The responses learn of it in the same turn as we do, some before and some after.
    await new Promise((resolve) => setImmediate(resolve));
  }

  async close(): Promise<void> {
    this.#agent.destroy();
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
    // Some handlers of these tests never end.
    await this.latchkey.close({ drainMs: 0 });
  }
}

/** Waits for a condition, looking at it whenever the event loop comes round. */
export async function until(what: string, condition: () => boolean): Promise<void> {
  const giveUpAt = Date.now() + 5000;
  while (!condition()) {
    if (Date.now() > giveUpAt) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}
