import { randomUUID } from "node:crypto";
import express, { type NextFunction, type Request, type Response } from "express";
import {
  createLatchkey,
  currentOperation,
  type LatchkeyOptions,
  type OutcomeVerdict,
  type ReconcileQuestion,
} from "latchkey";
import { idempotent } from "latchkey/express";
import type { Books, Ride } from "./books/books.ts";
import { type Provider, wasNeverSent } from "./provider/client.ts";

export interface RideServiceOptions<Tx> {
  readonly books: Books<Tx>;
  readonly provider: Provider;
  /** Whether the provider deduplicates on an Idempotency-Key, so that a charge may be asked for again. */
  readonly providerDeduplicates: boolean;
  /** What `createLatchkey` is told besides, by those who cannot wait for its defaults. */
  readonly settings?: Pick<LatchkeyOptions, "leaseMs" | "reconcileAfterMs" | "breaker">;
}

/** Rides that are paid once, whatever breaks on the way. */
export function rideService<Tx>(options: RideServiceOptions<Tx>) {
  const { books, provider, providerDeduplicates, settings = {} } = options;
  const latchkey = createLatchkey({
    store: books.store,
    tenant: (request) => request.header(userHeader) ?? anonymous,
    ...settings,
  });
  const app = express();

  const createRide = idempotent(latchkey, { name: "rides.create", onCrash: "resume", reconcile });
  app.post("/rides", express.json(), createRide, async (req, res) => {
    const { from, to } = Object(req.body) as { from?: unknown; to?: unknown };
    if (typeof from !== "string" || typeof to !== "string") {
      res.status(400).json({ error: "a ride goes from somewhere to somewhere" });
      return;
    }
    const user = req.header(userHeader) ?? anonymous;
    const op = currentOperation<Tx>();

    const ride = await op.atomic("ride_created", async (tx) => {
      const created = { id: randomUUID(), user, from, to, fareCents };
      await books.insertRide(tx, created);
      return created;
    });

    const charge = await op.effect(
      "charge_created",
      ({ idempotencyKey, signal }) =>
        provider.charge(
          { amount: ride.fareCents, currency: "usd", reference: ride.id },
          { idempotencyKey, signal },
        ),
      { keyed: providerDeduplicates, isDefinitelyNotExecuted: wasNeverSent },
    );

    if (charge.status === "declined") {
      await op.atomic("declined", (tx) =>
        books.settleRide(tx, { id: ride.id, state: "declined", chargeId: charge.id }),
      );
      res.status(402).json({ ride: ride.id, error: "the card was declined" });
      return;
    }

    await op.atomic("finished", async (tx) => {
      await books.settleRide(tx, { id: ride.id, state: "paid", chargeId: charge.id });
      await op.enqueue(tx, "receipt.send", { ride: ride.id, charge: charge.id }, { partition: user });
      await op.respond(tx, {
        status: 201,
        headers: { location: `/rides/${ride.id}` },
        body: { ride: ride.id, charge: charge.id },
      });
    });
  });

  /** Asked about a charge whose answer was lost, at a provider that would charge again if it were asked to. */
  async function reconcile({ phases, asked, signal }: ReconcileQuestion): Promise<OutcomeVerdict> {
    const ride = phases.find(({ name }) => name === "ride_created")?.result as Pick<Ride, "id"> | undefined;
    // Nothing is charged before its ride is written down.
    if (ride === undefined) return { kind: "not-executed" };
    const charge = await provider.find(ride.id, { signal });
    if (charge !== undefined) return { kind: "effect-done", result: charge, reference: charge.id };
    // A request may still be on its way. By the second question a whole back-off has passed, longer than any takes.
    return asked < 2 ? { kind: "unknown" } : { kind: "not-executed" };
  }

  app.get("/rides/:id", async (req, res) => {
    const ride = await books.ride(req.params.id);
    if (ride === undefined) res.status(404).json({ error: "there is no such ride" });
    else res.json(ride);
  });

  app.use((error: Error, _req: Request, res: Response, _next: NextFunction) => {
    res.status(502).json({ error: error.message, advice: "send it again with the same Idempotency-Key" });
  });

  return { app, latchkey };
}

/** Names the caller here; a real service takes it from what authenticated the request. */
export const userHeader = "x-user";
const anonymous = "demo";

const fareCents = 2_000; // Every rocket ride costs the same: gravity does.
