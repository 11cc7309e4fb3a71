import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { TroubledProcess, TroubledService } from "./troubled-service.ts";

interface Sent {
  readonly tenant: string;
  readonly path: string;
  readonly key: string;
  readonly amount: number;
}

/** How often each is asked for, and by whom: a few tenants make most of the traffic. */
const paths = {
  "/payments": 12,
  "/transfers": 2,
  "/payouts": 2,
  "/exports": 0.5,
  "/orders": 1.5,
  "/quotes": 1,
};
const tenants = { acme: 8, globex: 5, initech: 3, umbrella: 2, hooli: 1, "jo@example.com": 0.5 };

const tickMs = 50;
const freshPerTick = 1;
const rememberedMax = 400; // Old enough that some of them have expired.

/**
 * Traffic for so many seconds, with something of everything that the dashboard shows: retries, misuse, a process that is
 * killed and one that is frozen, a store that fails, messages that cannot be delivered, a tenant that goes wild.
 */
export async function runTroubledLoad(service: TroubledService, seconds: number): Promise<void> {
  const [first, second] = service.processes;
  const begun = performance.now();
  const share = () => (performance.now() - begun) / 1000 / seconds;
  const between = (from: number, to: number) => share() >= from && share() < to;
  const until = (when: number) => sleep(Math.max(0, (when - share()) * seconds * 1000));
  const remembered: Sent[] = [];
  const underWay = new Set<Promise<unknown>>();

  function send(request: Sent, to: TroubledProcess = any(service.processes)): void {
    const sending = post(to, request).finally(() => underWay.delete(sending));
    underWay.add(sending);
  }
  function sendFresh(path = weighted(paths), tenant = weighted(tenants)): Sent {
    const request = { tenant, path, key: randomUUID(), amount: 1 + Math.floor(Math.random() * 1000) };
    send(request);
    remembered.push(request);
    if (remembered.length > rememberedMax) remembered.shift();
    return request;
  }

  async function traffic(): Promise<void> {
    while (share() < 1) {
      for (let count = 0; count < freshPerTick; count += 1) {
        const request = sendFresh();
        if (Math.random() < 0.1) send(request);
      }
      if (Math.random() < 0.3) send(any(remembered));
      if (Math.random() < 0.04) send({ ...any(remembered), amount: -1 });
      if (Math.random() < 0.03) send({ ...sendFresh(), key: Math.random() < 0.5 ? "" : "x".repeat(300) });
      // Somebody's client has lost its patience.
      if (between(0.15, 0.3)) for (const request of remembered.slice(-3)) send(request);
      if (between(0.8, 0.9)) for (let count = 0; count < 3; count += 1) sendFresh("/payments", "hooli");
      await sleep(tickMs);
    }
  }

  async function trouble(): Promise<void> {
    await until(0.35);
    for (let count = 0; count < 6; count += 1) send(sendFresh("/transfers"), second);
    await sleep(100);
    await second.kill();
    await second.start();
    await until(0.45);
    // The owner sleeps for longer than its lease, and its outcome counts no more when it wakes up.
    for (let count = 0; count < 4; count += 1) {
      send({ tenant: "acme", path: "/transfers", key: randomUUID(), amount: 5 }, first);
    }
    await sleep(100);
    first.signal("SIGSTOP");
    await sleep(2_500);
    first.signal("SIGCONT");
    await until(0.55);
    for (const process of service.processes) process.tell({ storeFails: true });
    await until(0.65);
    for (const process of service.processes) process.tell({ storeFails: false, receiverFails: true });
    await until(0.85);
    for (const process of service.processes) process.tell({ receiverFails: false });
    for (const { tenant, key } of remembered.filter(({ path }) => path === "/payments").slice(-12, -6)) {
      second.tell({ bust: { tenant, key } });
    }
    await sleep(300);
    for (const request of remembered.filter(({ path }) => path === "/payments").slice(-30)) send(request);
    await until(1);
  }

  await Promise.all([traffic(), trouble()]);
  await Promise.all(underWay);
}

/** Whoever is down does not answer, and nobody minds. */
async function post(to: TroubledProcess, { tenant, path, key, amount }: Sent): Promise<void> {
  try {
    const response = await fetch(to.url + path, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "x-account": tenant,
        ...(key === "" ? {} : { "idempotency-key": key }),
      },
      body: JSON.stringify({ amount }),
      signal: AbortSignal.timeout(8_000),
    });
    await response.arrayBuffer();
  } catch {
    // Its process was killed, or sleeps.
  }
}

function any<T>(values: readonly T[]): T {
  return values[Math.floor(Math.random() * values.length)] as T;
}

function weighted<Name extends string>(weights: Readonly<Record<Name, number>>): Name {
  const entries = Object.entries(weights) as [Name, number][];
  let left = Math.random() * entries.reduce((sum, [, weight]) => sum + weight, 0);
  for (const [name, weight] of entries) {
    left -= weight;
    if (left < 0) return name;
  }
  return entries[0]?.[0] as Name;
}
