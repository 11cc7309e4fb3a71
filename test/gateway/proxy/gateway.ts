import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { afterEach } from "vitest";
import { Front, type FrontOptions } from "../../../src/gateway/proxy/front.ts";
import { type ProxyOptions, Proxy as ReverseProxy } from "../../../src/gateway/proxy/proxy.ts";
import { createLatchkey, type Latchkey, type LatchkeyEvent, type PolicyInput } from "../../../src/index.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import { type Answer, type OpenExchange, open, type Sending, send } from "../../adapters/client.ts";
import { until } from "../../adapters/harness.ts";

/** A gateway that protects POST and PATCH on every path, in this process. */
export class Gateway {
  readonly latchkey: Latchkey;
  readonly proxy: ReverseProxy;
  readonly front: Front;
  readonly events: LatchkeyEvent[] = [];

  constructor(options: ProxyOptions, { policy = {}, front = {} }: GatewayOptions = {}) {
    this.latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
    this.latchkey.subscribe((event) => this.events.push(event));
    this.proxy = new ReverseProxy(options);
    const protect = this.proxy.protect(this.latchkey, policy);
    this.front = new Front(front, {
      serve: (req, res) => void protect(req, res),
      upgrade: (req, socket, head) => this.proxy.upgrade(req, socket, head),
    });
    running.add(this);
  }

  static async start(options: ProxyOptions, more: GatewayOptions = {}): Promise<Gateway> {
    const gateway = new Gateway(options, more);
    gateway.front.server.listen(0, "127.0.0.1");
    await once(gateway.front.server, "listening");
    return gateway;
  }

  get port(): number {
    return (this.front.server.address() as AddressInfo).port;
  }

  get origin(): string {
    return `http://127.0.0.1:${this.port}`;
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

  async close(): Promise<void> {
    running.delete(this);
    await this.front.drain(0);
    await this.proxy.close({ drainMs: 0 });
    await this.latchkey.close({ drainMs: 0 });
  }
}

export interface GatewayOptions {
  readonly policy?: PolicyInput;
  readonly front?: FrontOptions;
}

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
