import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import express from "express";
import { idempotent } from "../../../src/adapters/express.ts";
import { createLatchkey, currentOperation, type Latchkey, type Store } from "../../../src/index.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import { sqliteStore } from "../../../src/stores/sqlite/store.ts";
import { faultyStore, manualClock } from "../../../src/testing/index.ts";
import { relay, toHandlers } from "../../../src/workers/workers.ts";
import { listening, portOf } from "../../adapters/application.ts";
import { send } from "../../adapters/client.ts";
import { type Attack, minute, payments } from "./attack.ts";

/**
 * The provider charges, and the process dies before it has written that down; the client retries, and a sweeper comes.
 * Damage: charges beyond the first.
 */
export const partialFailure: Attack = async (isGuarded) => {
  const clock = manualClock({ startMs: Date.UTC(2026, 5, 1) });
  const store = memoryStore({ clock: clock.now });
  let charges = 0;
  const server = (dies: boolean) =>
    payments({
      clock,
      latchkey: { store },
      route: { onCrash: isGuarded ? "reconcile" : "retry" },
      handler: () => {
        charges += 1;
        return dies ? new Promise<Response>(() => {}) : Response.json({ charges }, { status: 201 });
      },
    });
  const dying = server(true);
  void dying.pay("k");
  await clock.advance(10);
  dying.latchkey.engine.close();
  await clock.advance(minute);
  const next = server(false);
  for (let retries = 0; retries < 3; retries += 1) {
    await next.pay("k");
    await next.latchkey.sweep();
    await clock.advance(minute);
  }
  return charges - 1;
};

/** A flow of two steps, each retried by a client that forgets the key of the second. Damage: steps done twice. */
export const incompleteCoverage: Attack = async (isGuarded) => {
  const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
  const done: string[] = [];
  const app = express();
  // On the application it covers what is added later, too; on one route it covers that.
  if (isGuarded) app.use(idempotent(latchkey));
  else app.use("/intents", idempotent(latchkey));
  for (const step of ["/intents", "/charges"]) {
    app.post(step, (_req, res) => {
      done.push(step);
      res.status(201).json({ step });
    });
  }
  const server = await listening(app.listen(0, "127.0.0.1"));
  const origin = `http://127.0.0.1:${portOf(server)}`;
  for (let attempts = 0; attempts < 3; attempts += 1) {
    await send(origin, { path: "/intents", key: "flow-1", json: {} });
    await send(origin, { path: "/charges", key: null, json: {} });
  }
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await latchkey.close();
  return done.length - new Set(done).size;
};

/** The store is down, and comes back. Damage: what was done without it, or is not done with it. */
export const failOpen: Attack = async (isGuarded) => {
  const clock = manualClock({ startMs: Date.UTC(2026, 5, 1) });
  let isDown = true;
  const store = faultyStore({
    store: memoryStore({ clock: clock.now }),
    runtime: clock,
    choose: () => ({ kind: isDown ? "failBefore" : "none" }),
  });
  const api = payments({
    clock,
    latchkey: { store },
    route: { onStoreDown: isGuarded ? "closed" : "open" },
  });
  for (let attempts = 0; attempts < 3; attempts += 1) await api.pay("k");
  const unprotected = api.paid();
  isDown = false;
  await clock.advance(minute);
  return unprotected + ((await api.pay("k")).status === 201 ? 0 : 1);
};

const deliveriesMax = 5;

/**
 * Deliveries whose answers are lost are repeated, and one message always fails. Damage: charges beyond the first, and
 * deliveries of the bad message beyond its limit.
 */
export const workerReplay: Attack = async (isGuarded) => {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-attack-"));
  const latchkey = createLatchkey({
    store: sqliteStore(join(folder, "latchkey.db")) as unknown as Store,
    tenant: "single",
  }) as Latchkey;
  const charged = new Set<string>();
  let lostAnswers = 0;
  let badDeliveries = 0;
  const deliver = toHandlers({
    charge: async ({ key, attempt }) => {
      // The provider knows a charge by its key: the message's own, or a new one each time.
      charged.add(isGuarded ? key : `${key}-${attempt}`);
      if (lostAnswers++ < 3) throw new Error("the answer was lost");
    },
    bad: async () => {
      badDeliveries += 1;
      throw new Error("never works");
    },
  });
  try {
    await latchkey.run({ tenant: "acme", key: "k" }, (op) =>
      op.atomic("paid", async (tx) => {
        await currentOperation().enqueue(tx, "charge", { amount: 10 });
        await currentOperation().enqueue(tx, "bad", {});
      }),
    );
    const worker = relay(latchkey, {
      deliver,
      attemptsMax: isGuarded ? deliveriesMax : 1_000_000,
      backoff: { baseMs: 0.1, capMs: 0.1 },
    });
    const giveUpAt = Date.now() + 10_000;
    const isOver = async () => {
      const { waiting, dead } = await latchkey.outboxCounts();
      return isGuarded ? waiting === 0 && dead === 1 : badDeliveries > 2 * deliveriesMax && waiting === 1;
    };
    while (!(await isOver()) && Date.now() < giveUpAt) await worker.runOnce();
    return charged.size - 1 + Math.max(0, badDeliveries - deliveriesMax);
  } finally {
    await latchkey.close();
    rmSync(folder, { recursive: true, force: true });
  }
};
