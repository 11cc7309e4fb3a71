import { afterEach } from "vitest";
import type { Store } from "../../../src/core/store.ts";
import { checkText } from "../../../src/gateway/config/settings.ts";
import { startGateway, type Gateway as WholeGateway } from "../../../src/gateway/gateway.ts";
import type { ProxyOptions } from "../../../src/gateway/proxy/proxy.ts";
import type { StrictServerOptions } from "../../../src/gateway/proxy/strict-server.ts";
import type { LatchkeyEvent, PolicyInput } from "../../../src/index.ts";
import { type Answer, type OpenExchange, open, type Sending, send } from "../../adapters/client.ts";
import { until } from "../../adapters/harness.ts";

/** The whole gateway, in this process, protecting POST and PATCH on every path. */
export class Gateway {
  readonly events: LatchkeyEvent[] = [];
  readonly port: number;
  readonly origin: string;
  readonly #gateway: WholeGateway;

  private constructor(gateway: WholeGateway) {
    this.#gateway = gateway;
    this.port = gateway.port;
    this.origin = gateway.url;
    gateway.latchkey.subscribe((event) => this.events.push(event));
    running.add(this);
  }

  static async start(
    options: ProxyOptions,
    { policy = {}, listen = {}, store }: GatewayOptions = {},
  ): Promise<Gateway> {
    const { upstream, trustForwarded, ...rest } = options;
    const text = JSON.stringify({
      upstream: { url: String(upstream), ...rest },
      listen: { port: 0, trustForwarded, ...listen },
      store: "memory:",
      tenant: "single",
      defaults: policy,
      workers: false,
    });
    const { settings, errors } = checkText({ text, file: undefined, env: {} });
    if (settings === undefined) throw new Error(JSON.stringify(errors));
    return new Gateway(await startGateway(settings, { logger: silent, ...(store && { store }) }));
  }

  send(sending: Sending = {}): Promise<Answer> {
    return send(this.origin, sending);
  }

  open(sending: Sending = {}): OpenExchange {
    return open(this.origin, sending);
  }

  /** How the last execution was settled, once it was. */
  async settled(times = 1): Promise<string> {
    const settled = () => this.events.flatMap((event) => (event.type === "settled" ? [event.as] : []));
    await until("an execution to be settled", () => settled().length >= times);
    return settled().at(-1) ?? "";
  }

  async close(options: { readonly drainMs: number } = { drainMs: 0 }): Promise<void> {
    running.delete(this);
    await this.#gateway.close(options);
  }
}

export interface GatewayOptions {
  readonly policy?: PolicyInput;
  readonly listen?: StrictServerOptions;
  /** In place of one in memory. */
  readonly store?: Store;
}

const silent = { debug() {}, info() {}, warn() {}, error() {} };

const running = new Set<Gateway>();
const closing: (() => Promise<void>)[] = [];

/** Closes something when the test is over, after the gateways. */
export function closesAfterwards<T extends { close(): Promise<void> }>(one: T): T {
  closing.push(() => one.close());
  return one;
}

afterEach(async () => {
  await Promise.all([...running].map((gateway) => gateway.close()));
  await Promise.all(closing.splice(0).map((close) => close()));
});
