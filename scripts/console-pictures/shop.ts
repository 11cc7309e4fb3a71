import { idempotent } from "../../src/adapters/fetch.ts";
import type { Runtime } from "../../src/engine/runtime.ts";
import { createLatchkey, currentOperation, type Latchkey } from "../../src/index.ts";
import { type SqliteDatabase, sqliteStore } from "../../src/stores/sqlite/store.ts";
import { NotDeliverableError, startWorkers } from "../../src/workers/workers.ts";

/** A payments API as its people on call know it: mostly well, and once an hour its provider is not. */
export interface Shop {
  readonly latchkey: Latchkey<SqliteDatabase>;
  /** One more thing that a client does: pay, retry, pay twice at once, reuse a key. */
  trade(): Promise<void>;
  /** One payment that the pictures follow; `isLost` if the provider's answer to it is. */
  payTheOne(options: { readonly isLost: boolean }): Promise<void>;
  /** While it is, calls get lost, and everything takes longer. */
  setProviderSick(isSick: boolean): void;
  startWorkers(): { stop(): Promise<void> };
}

const tenants = ["acme", "globex", "initech", "hooli", "umbrella", "stark"];
const undeliverable: Readonly<Record<string, string>> = {
  "receipt.send": "550 5.1.1 <billing@customer.example>: the mailbox does not exist",
  "ledger.post": "422 from the ledger: the period 2026-10 is closed",
  "webhook.payment": "410 Gone from https://hooks.customer.example/payments",
};
const topics = Object.keys(undeliverable);
const products = ["charges", "charges", "charges", "refunds", "payouts"];

export function openShop(
  file: string,
  options: { readonly runtime: Runtime; readonly clock: () => number },
): Shop {
  const { runtime, clock } = options;
  const latchkey = createLatchkey<SqliteDatabase>({
    store: sqliteStore(file, { clock, synchronous: "normal" }),
    tenant: (request) => request.header("x-account"),
    runtime,
    leaseMs: 60_000,
    reconcileAfterMs: 5_000,
  });
  let isSick = false;
  const { random } = runtime;
  const sleep = (ms: number) => new Promise<void>((resolve) => runtime.setTimer(resolve, ms));
  const id = (prefix: string) =>
    `${prefix}_${Math.floor(random() * 36 ** 8)
      .toString(36)
      .padStart(8, "0")}`;

  const routes = new Map(
    [...new Set(products)].map((name) => [
      name,
      idempotent(latchkey as Latchkey, { name, reconcile: () => ({ kind: "unknown" }) })(async (request) => {
        const op = currentOperation<SqliteDatabase>();
        const { amount, currency } = (await request.json()) as { amount: number; currency: string };
        const payment = await op.atomic("payment_recorded", () => ({ id: id("pay"), amount, currency }));
        await sleep(20 + random() * (isSick ? 4_000 : 160));
        const isToBeLost = request.headers.has("x-lost");
        if (isSick && !isToBeLost && random() < 0.25) throw new Error("the provider refused the connection");
        const charge = await op.effect(
          "charge_created",
          () => {
            const isLost = isToBeLost || random() < (isSick ? 0.02 : 0.0008);
            if (isLost) throw new Error("the provider's answer was lost");
            return { id: id("ch"), captured: true };
          },
          { keyed: false },
        );
        await op.atomic("receipt_enqueued", (tx) =>
          op.enqueue(tx, pick(topics), { payment: payment.id, account: op.scope, amount, currency }),
        );
        const answer = {
          id: payment.id,
          object: name.slice(0, -1),
          amount,
          currency,
          charge: charge.id,
          status: "succeeded",
        };
        return Response.json(answer, { status: 201, headers: { location: `/${name}/${payment.id}` } });
      }),
    ]),
  );

  const recent: {
    readonly route: string;
    readonly headers: Record<string, string>;
    readonly body: string;
  }[] = [];
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
  const send = async ({ route, headers, body }: (typeof recent)[number]) => {
    const request = new Request(`http://shop.test/${route}`, { method: "POST", headers, body });
    await routes
      .get(route)?.(request)
      .catch(() => undefined);
  };

  return {
    latchkey,
    payTheOne: ({ isLost }) =>
      send({ ...theOne, headers: { ...theOne.headers, ...(isLost ? { "x-lost": "yes" } : {}) } }),
    setProviderSick: (next) => {
      isSick = next;
    },
    async trade() {
      const dice = random();
      const before = recent.length === 0 ? undefined : pick(recent);
      if (dice < 0.18 && before !== undefined) return send(before);
      if (dice < 0.187 && before !== undefined)
        return send({ ...before, body: '{"amount":1,"currency":"eur"}' });
      const key = `${hex(random, 8)}-${hex(random, 4)}-4${hex(random, 3)}-a${hex(random, 3)}-${hex(random, 6)}${hex(random, 6)}`;
      const order = {
        route: pick(products),
        headers: { "x-account": pick(tenants), "idempotency-key": key, "content-type": "application/json" },
        body: JSON.stringify({
          amount: 500 + Math.floor(random() * 20_000),
          currency: pick(["eur", "usd", "gbp"]),
        }),
      };
      if (dice > 0.993) {
        const { "idempotency-key": _, ...headers } = order.headers;
        return send({ ...order, headers });
      }
      recent.push(order);
      if (recent.length > 300) recent.shift();
      const again = dice > 0.94 || isSick ? [send(order)] : [];
      await Promise.all([send(order), ...again]);
    },
    startWorkers: () =>
      startWorkers(latchkey as Latchkey, {
        reconciler: { attemptsMax: 4, backoff: { baseMs: 60_000, capMs: 300_000 } },
        relay: {
          async deliver({ topic }) {
            if (random() < 0.002) throw new NotDeliverableError(undeliverable[topic] ?? "410 Gone");
          },
        },
      }),
  };
}

/** What the pictures of one record are of. */
export const theOne = {
  route: "charges",
  headers: {
    "x-account": "acme",
    "idempotency-key": "8e03978e-40d5-43e8-bc93-6894a57f9324",
    "content-type": "application/json",
  },
  body: '{"amount":12900,"currency":"eur"}',
};

function hex(random: () => number, digits: number): string {
  return Math.floor(random() * 16 ** digits)
    .toString(16)
    .padStart(digits, "0");
}
