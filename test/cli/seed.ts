import { setImmediate as nextTurn } from "node:timers/promises";
import type { Store } from "../../src/core/store.ts";
import { createLatchkey } from "../../src/latchkey.ts";
import { NotDeliverableError, relay } from "../../src/workers/workers.ts";
import { request } from "../support/reserve-request.ts";

const dayMs = 86_400_000;

/**
 * What a service leaves behind: an answer, an execution under way, an outcome that nobody knows. Whatever comes next is
 * later by the clock, and lists are in the order of time.
 */
export async function seedRecords(store: Store, scope = "acme"): Promise<void> {
  await complete(store, scope, "paid");
  await nextMillisecond();
  const running = await reserve(store, scope, "running");
  if (running.fence !== 1) throw new Error("the store is not new");
  await nextMillisecond();
  await suspend(store, scope, "doubtful");
  await nextMillisecond();
}

/** Records that were made within one are in no particular order. */
async function nextMillisecond(): Promise<void> {
  for (const before = Date.now(); Date.now() === before; ) await nextTurn();
}

export async function complete(
  store: Store,
  scope: string,
  key: string,
  body = '{"id":"ch_1"}',
): Promise<void> {
  const lease = await reserve(store, scope, key);
  const headers = [["content-type", "application/json"]] as const;
  const response = { kind: "full", status: 201, headers, body: Buffer.from(body) } as const;
  await store.settle(lease, { kind: "complete", response, retentionMs: dayMs });
}

export async function suspend(store: Store, scope: string, key: string): Promise<void> {
  const lease = await reserve(store, scope, key);
  await store.settle(lease, {
    kind: "suspend",
    reason: "the provider did not answer",
    reconcileAfterMs: dayMs,
  });
}

async function reserve(store: Store, scope: string, key: string) {
  const reservation = await store.reserve(
    request({ scope, key, route: "charges.create", leaseMs: dayMs, retentionMs: dayMs }),
  );
  if (reservation.kind !== "execute") throw new Error(`${key} was used before`);
  return reservation.lease;
}

/** Messages that nobody could deliver. */
export async function seedDeadLetters(store: Store, count: number): Promise<void> {
  const latchkey = createLatchkey({ store, tenant: "single" });
  await latchkey.run({ tenant: "acme", key: `messages-${count}`, input: count }, async (operation) => {
    await operation.atomic("enqueued", async (tx) => {
      for (let number = 1; number <= count; number += 1)
        await operation.enqueue(tx, "receipt.send", { number });
    });
  });
  const deliver = async () => {
    throw new NotDeliverableError("nobody lives there");
  };
  const worker = relay(latchkey, { deliver });
  for (let dead = 0; dead < count; ) dead += (await worker.runOnce()).dead;
}
