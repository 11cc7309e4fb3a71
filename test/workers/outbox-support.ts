import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import type { NewMessage } from "../../src/core/outbox.ts";
import { noProgress } from "../../src/core/phase.ts";
import type { Store } from "../../src/core/store.ts";
import { createLatchkey, type Latchkey, type LatchkeyOptions } from "../../src/index.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import type { DeliveredMessage } from "../../src/workers/deliveries/deliver.ts";
import { freshDatabase } from "../support/database.ts";

/** A store with an outbox that nobody else uses. */
export interface OutboxFixture {
  /** Where another process finds it, if that is by a URL. */
  readonly url: string | undefined;
  /** Another process's view of the same store. */
  open(options?: Partial<LatchkeyOptions>): Latchkey;
  close(): Promise<void>;
}

/** Every store that has an outbox. */
export const outboxStores: Record<string, () => Promise<OutboxFixture>> = {
  async sqlite() {
    const folder = mkdtempSync(join(tmpdir(), "latchkey-outbox-"));
    return fixture(
      () => sqliteStore(join(folder, "latchkey.db")),
      async () => rmSync(folder, { recursive: true, force: true }),
    );
  },
  async postgres() {
    const database = await freshDatabase();
    const pool = new pg.Pool({ connectionString: database.url });
    await migrate(pool);
    return fixture(
      () => postgresStore(pool),
      async () => {
        await pool.end();
        await database.drop();
      },
      database.url,
    );
  },
};

function fixture(openStore: () => Store, remove: () => Promise<void>, url?: string): OutboxFixture {
  const opened: Latchkey[] = [];
  return {
    url,
    open(options = {}) {
      const latchkey = createLatchkey({ store: openStore(), tenant: "single", ...options });
      opened.push(latchkey);
      return latchkey;
    },
    async close() {
      for (const latchkey of opened) await latchkey.close();
      await remove();
    },
  };
}

/** Enqueues messages in one transaction, as a phase does. */
export async function enqueue(
  { store }: Latchkey,
  ...messages: readonly (Partial<Omit<NewMessage, "payload">> & { readonly payload?: unknown })[]
): Promise<void> {
  const reservation = await store.reserve({
    scope: "single",
    key: randomUUID(),
    fingerprint: "v1:enqueue",
    owner: randomUUID(),
    leaseMs: 60_000,
    retentionMs: 60_000,
    onCrash: "retry",
    reconcileAfterMs: 0,
    mode: "execute",
    route: undefined,
    request: undefined,
  });
  if (reservation.kind !== "execute") throw new Error(`the reservation was answered ${reservation.kind}`);
  const answer = await store.transact?.(
    reservation.lease,
    () => undefined,
    () => ({
      progress: noProgress,
      onCrash: "retry",
      messages: messages.map((message) => ({
        topic: "receipt.send",
        partition: null,
        key: randomUUID(),
        correlationId: "request-1",
        scope: "acme",
        traceparent: null,
        delayMs: 0,
        ...message,
        payload: JSON.stringify(message.payload ?? null),
      })),
    }),
  );
  if (answer?.kind !== "committed") throw new Error("nothing was enqueued");
}

/** The trace that they come from. */
export const tracedBy = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/** A message as deliveries get it. */
export function deliveredMessage(overrides: Partial<DeliveredMessage> = {}): DeliveredMessage {
  return {
    id: "7",
    topic: "receipt.send",
    payload: { charge: "ch_1", amount: 500 },
    key: "lk_7",
    correlationId: "request-1",
    partition: null,
    traceparent: tracedBy,
    attempt: 1,
    createdAt: Date.UTC(2026, 0, 2, 3, 4, 5, 678),
    ...overrides,
  };
}

/** Waits for a condition; a test whose condition never holds fails by its time-out. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 10));
}
