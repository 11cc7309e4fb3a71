import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { PrometheusServer } from "../support/prometheus-server.ts";
import type { TroubledProcess, TroubledService } from "./troubled-service.ts";

interface Sent {
  readonly tenant: string;
  readonly path: string;
  readonly key: string;
  readonly amount: number;
}

/** What is asked for, one after another, so that every run has some of each. A few tenants make most of the traffic. */
const paths = [
  ...["/payments", "/payments", "/transfers", "/payments", "/payouts", "/payments", "/orders", "/payments"],
  ...["/quotes", "/payments", "/payments", "/transfers", "/payouts", "/payments", "/exports", "/payments"],
];
const tenants = ["acme", "globex", "acme", "initech", "acme", "umbrella", "globex", "acme", "jo@example.com"];

/** Some payouts are not answered by the bank, which knows more later, or never. */
const payoutFates = ["", "late-", "lost-"] as const;

const tickMs = 50;
const rememberedMax = 400; // Old enough that some of them have expired.
const seenWithinMs = 30_000;
const moment = 100; // By then a request has reached its handler, and no transfer has ended.

/**
 * Traffic for about so many seconds, with something of everything that the dashboard shows: retries, misuse, a process
 * that is killed and one that is frozen, a store that fails, messages that cannot be delivered, a tenant that goes wild.
 * What lasts only for a moment lasts until Prometheus has seen it.
 */
export async function runTroubledLoad(
  service: TroubledService,
  prometheus: PrometheusServer,
  seconds: number,
): Promise<void> {
  const [first, second] = service.processes;
  const remembered: Sent[] = [];
  const underWay = new Set<Promise<unknown>>();
  let mood: "calm" | "impatient" | "wild" | "over" = "calm";

  function send(request: Sent, to: TroubledProcess = any(service.processes)): void {
    const sending = post(to, request).finally(() => underWay.delete(sending));
    underWay.add(sending);
  }
  let made = 0;
  function fresh(path = nth(paths, made), tenant = nth(tenants, made)): Sent {
    made += 1;
    const key = (path === "/payouts" ? nth(payoutFates, made) : "") + randomUUID();
    const request = { tenant, path, key, amount: made };
    remembered.push(request);
    if (remembered.length > rememberedMax) remembered.shift();
    return request;
  }
  const lastPayments = () => remembered.filter(({ path }) => path === "/payments");
  const pause = (share: number) => sleep(share * seconds * 1000);

  async function traffic(): Promise<void> {
    for (let tick = 0; mood !== "over"; tick += 1) {
      const request = fresh();
      send(request);
      // Half of what takes long is asked for twice at once, and so is some of the rest.
      if (tick % 10 === 0 || (request.path === "/transfers" && tick % 16 < 8)) send(request);
      if (tick % 3 === 0) send(any(remembered));
      if (tick % 25 === 0) send({ ...any(remembered), amount: -1 });
      if (tick % 12 === 0) send({ ...request, key: tick % 24 === 0 ? "" : "x".repeat(300) });
      if (mood === "impatient") for (const earlier of remembered.slice(-3)) send(earlier);
      if (mood === "wild") for (let count = 0; count < 3; count += 1) send(fresh("/payments", "hooli"));
      await sleep(tickMs);
    }
  }

  /** More than the calls that went well just before, or their share would keep it closed. */
  async function untilBreakerIsSeen(): Promise<void> {
    const deadline = performance.now() + seenWithinMs;
    do {
      for (let count = 0; count < 30; count += 1) send(fresh("/payments"));
      await sleep(moment);
      if (performance.now() > deadline) throw new Error("The breaker did not open, or was not scraped.");
    } while ((await prometheus.query("api_idempotency_breaker_state > 0")).length === 0);
  }

  async function trouble(): Promise<void> {
    await pause(0.15);
    mood = "impatient";
    await pause(0.13);
    mood = "calm";
    await pause(0.07);
    for (let count = 0; count < 6; count += 1) send(fresh("/transfers"), second);
    await sleep(moment);
    await second.kill();
    await second.start();
    await pause(0.05);
    // The owner sleeps for longer than its lease, and its outcome counts no more when it wakes up.
    for (let count = 0; count < 4; count += 1) send(fresh("/transfers"), first);
    await sleep(moment);
    first.signal("SIGSTOP");
    await sleep(2_000);
    first.signal("SIGCONT");
    await pause(0.07);
    for (const process of service.processes) process.tell({ storeFails: true });
    await sleep(moment);
    for (let count = 0; count < 5; count += 1) send(fresh("/quotes"));
    await Promise.all([pause(0.13), untilBreakerIsSeen()]);
    for (const process of service.processes) process.tell({ storeFails: false });
    await pause(0.08);
    for (const process of service.processes) process.tell({ receiverFails: true });
    await pause(0.13);
    for (const process of service.processes) process.tell({ receiverFails: false });
    for (let count = 0; count < 30; count += 1) send(fresh("/payments", "hooli"));
    mood = "wild";
    await pause(0.1);
    mood = "calm";
    for (const { tenant, key } of lastPayments().slice(-12, -6)) second.tell({ bust: { tenant, key } });
    await sleep(moment);
    for (const request of lastPayments().slice(-12)) send(request);
    await pause(0.09);
    mood = "over";
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

function nth<T>(values: readonly T[], index: number): T {
  return values[index % values.length] as T;
}
