import { once } from "node:events";
import type { IncomingMessage, Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type Reporting, reportActivity } from "../admin/admin.ts";
import { ConfigError, StoreError } from "../core/errors.ts";
import { defaultPolicy } from "../core/policy.ts";
import { defaultProblemTypeBase } from "../core/problem.ts";
import type { Store } from "../core/store.ts";
import type { Logger } from "../engine/logging.ts";
import { within } from "../http/within.ts";
import type { Latchkey } from "../latchkey.ts";
import { openStore } from "../stores/open-store.ts";
import type { RunningWorkers } from "../workers/workers.ts";
import { latchkeyOf, workersOf } from "./assembly.ts";
import { problemLine } from "./config/problems.ts";
import type { GatewayConfig } from "./config/schema.ts";
import type { GatewaySettings } from "./config/settings.ts";
import { Entrance } from "./entrance.ts";
import { Generation, Hooks, limitsOf, upstreamUrl } from "./generation.ts";
import { jsonLogger } from "./log.ts";
import { OwnDispatch } from "./own-dispatch.ts";
import { type OwnPlaces, openOwnPlaces } from "./own-paths.ts";
import { ended, strictServer } from "./proxy/strict-server.ts";
import { needingRestart } from "./reloading.ts";

export { problemLine } from "./config/problems.ts";
export {
  checkGateway,
  type GatewayCheck,
  type GatewayFlags,
  type GatewaySettings,
  readSettings,
} from "./config/settings.ts";

export interface GatewayOptions {
  /** Where everything out of the ordinary is logged; lines of JSON to stderr if left out. */
  readonly logger?: Logger;
  /** A store that is at hand, in place of the one that the configuration names. It is closed with the gateway. */
  readonly store?: Store;
}

/**
 * Starts a gateway in front of a service. Rejects, and leaves nothing open, if something cannot be had: the store, a
 * port, a policy that the store cannot keep.
 *
 * @example
 * ```ts
 * const gateway = await startGateway(await readSettings({ config: "gateway.yaml" }));
 * process.on("SIGTERM", () => gateway.close());
 * ```
 */
export async function startGateway(
  settings: GatewaySettings,
  options: GatewayOptions = {},
): Promise<Gateway> {
  const gateway = new Gateway(settings, options);
  try {
    await gateway.open();
  } catch (error) {
    await gateway.close({ drainMs: 0 });
    throw error;
  }
  return gateway;
}

/** One process in front of a service. Any number of them may share a store. */
export class Gateway {
  readonly #logger: Logger;
  readonly #store: Store | undefined;
  readonly #hooks = new Hooks();
  readonly #dispatch = new OwnDispatch();
  readonly #entrance: Entrance;
  readonly #server: Server;
  /** What the process was started with; its built-on parts stay what they are. */
  #config: GatewayConfig;
  #current: Generation | undefined;
  /** Of earlier generations, with requests under way. */
  readonly #retiring = new Set<Generation["proxy"]>();
  #latchkey: Latchkey | undefined;
  #places: OwnPlaces | undefined;
  #workers: RunningWorkers | undefined;
  #reporting: Reporting | undefined;
  #closing: Promise<void> | undefined;
  #reloading: Promise<void> = Promise.resolve();

  /** @internal */
  constructor({ config, warnings }: GatewaySettings, { logger = jsonLogger(), store }: GatewayOptions) {
    this.#config = config;
    this.#logger = logger;
    this.#store = store;
    this.#warn(warnings);
    this.#entrance = new Entrance({
      context: {
        policy: { ...defaultPolicy, profile: config.defaults.profile ?? defaultPolicy.profile },
        typeBase: config.problemTypeBase ?? defaultProblemTypeBase,
        key: undefined,
      },
      logger,
      dispatch: this.#dispatch,
      current: () => this.#current,
      places: () => this.#places,
      isClosing: () => this.#closing !== undefined,
    });
    this.#server = strictServer(config.listen, this.#entrance);
  }

  /** @internal */
  async open(): Promise<void> {
    const config = this.#config;
    const store = this.#store ?? (await openStore(config.store, { migrate: config.migrate }));
    try {
      this.#latchkey = latchkeyOf(config, {
        store,
        logger: this.#logger,
        tenant: ({ native }) => this.#entrance.callerOf(native as IncomingMessage),
        limits: { of: (tenant) => limitsOf(this.#current?.config ?? config, tenant) },
      });
    } catch (error) {
      await store.close();
      throw error;
    }
    const latchkey = this.#latchkey;
    await assertReachable(latchkey);
    this.#current = await Generation.of(config, { latchkey, hooks: this.#hooks });
    this.#hooks.use(this.#current.hooks);
    this.#places = await openOwnPlaces(config, latchkey, () => this.#closing === undefined);
    this.#server.listen(config.listen.port, config.listen.host);
    await once(this.#server, "listening");
    // Also without an admin API of its own: the console of another process shows all of them.
    this.#reporting = reportActivity(latchkey, { role: "gateway" });
    this.#workers = workersOf(config, {
      latchkey,
      url: this.#loopback,
      headersFor: (request) => this.#dispatch.headersFor(request),
    });
    this.#logger.info(
      {
        event: "gateway_started",
        url: this.url,
        upstream: upstreamUrl(config),
        store: store.name,
        workers: this.#workers?.names ?? [],
        ...this.#places.urls,
      },
      `the gateway listens on ${this.url}`,
    );
  }

  /** @internal What clients connect to. */
  get server(): Server {
    return this.#server;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return this.#urlOf((this.#server.address() as AddressInfo).address);
  }

  /** Where metrics and admin API listen, if they have ports of their own. */
  get urls(): OwnPlaces["urls"] {
    return this.#places?.urls ?? {};
  }

  /** What everything is kept by, for whoever runs the gateway inside of another program. */
  get latchkey(): Latchkey {
    if (this.#latchkey === undefined) throw new TypeError("the gateway is not open");
    return this.#latchkey;
  }

  /**
   * Takes over another configuration between two requests; those under way end by the old one. Rejects and changes
   * nothing if it cannot be used, or if it differs in what only a restart can change.
   */
  reload(settings: GatewaySettings): Promise<void> {
    // One after another: each is compared with what the one before has made of the gateway.
    const reloading = this.#reloading.then(() => this.#reload(settings));
    this.#reloading = reloading.catch(() => {});
    return reloading;
  }

  async #reload({ config, warnings }: GatewaySettings): Promise<void> {
    const before = this.#current;
    if (before === undefined || this.#closing !== undefined)
      throw new ConfigError("the gateway is not running");
    const needed = needingRestart(this.#config, config);
    if (needed.length > 0) {
      throw new ConfigError(
        `nothing was changed: ${needed.join(", ")} ${needed.length === 1 ? "differs" : "differ"}, which only a restart can change`,
      );
    }
    const next = await Generation.of(config, { latchkey: this.latchkey, hooks: this.#hooks, before });
    // Its end would not know of it.
    if (this.#closing !== undefined) throw new ConfigError("the gateway is not running");
    this.#warn(warnings);
    this.#current = next;
    this.#config = config;
    this.#hooks.use(next.hooks);
    if (next.proxy !== before.proxy) this.#retire(before.proxy);
    const { routes } = config;
    this.#logger.info(
      { event: "gateway_reloaded", upstream: upstreamUrl(config), routes: routes.length },
      "the gateway has taken over its new configuration",
    );
  }

  #retire(proxy: Generation["proxy"]): void {
    this.#retiring.add(proxy);
    const retired = () => this.#retiring.delete(proxy);
    proxy.retire().then(retired, retired);
  }

  /**
   * Takes no more connections, waits for what is under way, but not for longer than `drainMs`, and gives back everything
   * that was opened. What is cut off by then is settled and its client answered, for which there is a second more.
   */
  close(options: { readonly drainMs?: number } = {}): Promise<void> {
    this.#closing ??= this.#close(options.drainMs ?? this.#config.drainMs);
    return this.#closing;
  }

  async #close(drainMs: number): Promise<void> {
    let until = performance.now() + drainMs;
    const left = () => Math.max(0, until - performance.now());
    const server = this.#server;
    const isListening = server.listening;
    const closed = isListening ? ended(server) : Promise.resolve();
    // A worker's round may be a request to this very server, so it ends before that does.
    await within(left(), this.#workers?.stop());
    // Waits for executions whose client has gone as well, and ends websockets.
    const proxies = [...(this.#current === undefined ? [] : [this.#current.proxy]), ...this.#retiring];
    await Promise.all(proxies.map((proxy) => proxy.close({ drainMs: left() })));
    until = Math.max(until, performance.now() + partingMs);
    // The streams of the admin API would not end by themselves.
    await this.#places?.close();
    await within(left(), closed);
    server.closeAllConnections();
    await this.#reporting?.stop();
    await this.#latchkey?.close({ drainMs: left() });
    if (isListening) this.#logger.info({ event: "gateway_stopped" }, "the gateway has stopped");
  }

  #warn(warnings: GatewaySettings["warnings"]): void {
    for (const one of warnings) {
      this.#logger.warn({ event: "gateway_config", place: one.place }, problemLine(one));
    }
  }

  /** How the process reaches itself: an address for all of them is none to connect to. */
  get #loopback(): string {
    const { address } = this.#server.address() as AddressInfo;
    if (address === "0.0.0.0") return this.#urlOf("127.0.0.1");
    return this.#urlOf(address === "::" ? "::1" : address);
  }

  #urlOf(address: string): string {
    return `http://${address.includes(":") ? `[${address}]` : address}:${this.port}`;
  }
}

const partingMs = 1000; // To tell the store what became of a request, and its client after that, takes milliseconds.

/** A wrong password or a missing table is said before the port opens, and not by the first request. */
async function assertReachable(latchkey: Latchkey): Promise<void> {
  try {
    await latchkey.inspect({ scope: "latchkey gateway", key: "start" });
  } catch (error) {
    const { cause } = error as Error;
    const why = cause instanceof Error ? cause.message : (error as Error).message;
    throw new StoreError(
      `the store does not answer as it must: ${why}. Is it there, and was latchkey migrate run?`,
      {
        cause: error,
      },
    );
  }
}
