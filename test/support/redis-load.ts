import { randomInt, randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { idempotent } from "../../src/adapters/fetch.ts";
import { createLatchkey } from "../../src/index.ts";
import { type RedisClient, type RedisStoreOptions, redisStore } from "../../src/stores/redis/store.ts";

export const leaseMs = 2_000;

/** One request of one tenant, and what became of it. */
export interface Sent {
  readonly tenant: string;
  readonly key: string;
  /** When its handler began, each time. */
  readonly executedAt: number[];
  /** What its client was told, and when. */
  acknowledged: { readonly body: string; readonly at: number } | undefined;
}

/** Everything that was done and said, for the reckoning in the end. */
export interface Books {
  readonly sent: Sent[];
  /** What must not happen: another tenant's answer, two answers while nothing was lost, or one that nobody foresaw. */
  readonly complaints: string[];
  /** How often a client was told to come again because the store was down. */
  refused: number;
}

export interface App {
  /** Whether this was the end of it: an answer, or that nobody knows. */
  ask(sent: Sent): Promise<Answer>;
  close(): Promise<void>;
}

export type Answer =
  | { readonly kind: "answer"; readonly body: string }
  | { readonly kind: "unknown" }
  | { readonly kind: "later" };

/** An application with its own store and its own memory, as in a process of its own. */
export function startApp(client: RedisClient, books: Books, options: RedisStoreOptions): App {
  const store = redisStore(client, { warn: () => {}, ...options });
  const latchkey = createLatchkey({
    store,
    tenant: (request) => String(request.header("x-tenant")),
    leaseMs,
    storeTimeoutMs: 1_500,
  });
  const bySent = new Map<string, Sent>();
  const handle = idempotent(latchkey, { reconcileAfterMs: 600_000 })(async (request) => {
    const [tenant, key] = [request.headers.get("x-tenant"), request.headers.get("idempotency-key")];
    const sent = bySent.get(`${tenant} ${key}`);
    sent?.executedAt.push(performance.now());
    await sleep(randomInt(5));
    return Response.json({ tenant, key, execution: randomUUID() }, { status: 201 });
  });

  async function ask(sent: Sent): Promise<Answer> {
    const { tenant, key } = sent;
    bySent.set(`${tenant} ${key}`, sent);
    const headers = { "x-tenant": tenant, "idempotency-key": key };
    const response = await handle(new Request("http://localhost/", { method: "POST", headers, body: "{}" }));
    const body = await response.text();
    const told = JSON.parse(body) as { tenant?: string; key?: string; code?: string };
    if (response.status === 201) {
      if (told.tenant !== tenant || told.key !== key)
        books.complaints.push(`${tenant} ${key} was told ${body}`);
      return { kind: "answer", body };
    }
    if (told.code === "outcome-unknown") return { kind: "unknown" };
    if (told.code === "store-unavailable") books.refused += 1;
    else if (told.code !== "in-flight" && told.code !== "lease-lost") {
      books.complaints.push(`${tenant} ${key}: ${response.status} ${body}`);
    }
    return { kind: "later" };
  }
  return { ask, close: () => latchkey.close() };
}

/** Clients of two tenants, who use the same keys, and come again until they are answered. */
export function startClients(apps: readonly App[], books: Books, { clients }: { readonly clients: number }) {
  let isStopping = false;
  let keys = 0;

  async function client(): Promise<void> {
    while (!isStopping) {
      keys += 1;
      const key = `key-${keys}`;
      await Promise.all(["ada", "bob"].map((tenant) => request({ tenant, key })));
    }
  }

  async function request(id: { readonly tenant: string; readonly key: string }): Promise<void> {
    const sent: Sent = { ...id, executedAt: [], acknowledged: undefined };
    books.sent.push(sent);
    while (!isStopping) {
      const answer = await apps[randomInt(apps.length)]?.ask(sent);
      if (answer?.kind === "answer") {
        sent.acknowledged = { body: answer.body, at: performance.now() };
        return;
      }
      if (answer?.kind === "unknown") return;
      await sleep(20 + randomInt(30));
    }
  }

  const running = Array.from({ length: clients }, client);
  return {
    async stop() {
      isStopping = true;
      await Promise.all(running);
    },
  };
}

/** How it stands in the end with everything that was sent, as somebody sees it who remembers nothing. */
export interface Reckoning {
  /** Acknowledged, and not there any more: the retry was executed again, or nobody knows. */
  readonly lost: readonly Sent[];
  /** Executed more than once before anybody was told, because the reservation was lost. */
  readonly repeated: readonly Sent[];
  /** Neither answered nor known to be unknown in time. */
  readonly wedged: readonly Sent[];
  readonly unknown: number;
}

export async function reckon(app: App, books: Books): Promise<Reckoning> {
  const repeated = books.sent.filter(({ executedAt }) => executedAt.length > 1);
  const lost: Sent[] = [];
  const wedged: Sent[] = [];
  let unknown = 0;
  const deadline = performance.now() + leaseMs + 10_000;

  async function settle(sent: Sent): Promise<void> {
    for (;;) {
      const answer = await app.ask(sent);
      if (answer.kind === "unknown") unknown += 1;
      if (answer.kind !== "later") {
        const before = sent.acknowledged?.body;
        if (before !== undefined && (answer.kind === "unknown" || answer.body !== before)) lost.push(sent);
        return;
      }
      if (performance.now() > deadline) {
        wedged.push(sent);
        return;
      }
      await sleep(50);
    }
  }

  const left = [...books.sent];
  await Promise.all(
    Array.from({ length: 50 }, async () => {
      for (let sent = left.pop(); sent !== undefined; sent = left.pop()) await settle(sent);
    }),
  );
  return { lost, repeated, wedged, unknown };
}
