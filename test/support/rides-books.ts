import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import type { Ride } from "../../examples/rocket-rides/books/books.ts";
import type { LedgerCharge } from "../../examples/rocket-rides/provider/ledger.ts";
import { compareLedgers, type LedgerDifference } from "../../src/workers/ledger.ts";
import type { Lane } from "./rides-lane.ts";
import type { BooksState } from "./rides-options.ts";

const receiptsMsMax = 20_000; // Far longer than a relay needs, however busy the machine is.

/** What must be true of a lane's books, its provider's ledger and its records, whatever was killed on the way. */
export async function checkBooks(lane: Lane): Promise<void> {
  const books = await untilReceiptsAreSent(lane);
  const { rides, actions } = books;
  expect(await differences(await lane.provider.charges(), rides)).toEqual([]);
  expect(sorted(rides.map(({ id }) => id))).toEqual(sorted(lane.rides.map(({ ride }) => ride)));
  const byId = new Map(rides.map((ride) => [ride.id, ride]));
  for (const booked of lane.rides) {
    const state = booked.status === 201 ? "paid" : "declined";
    const ride = byId.get(booked.ride);
    expect({ booked, ride, actions: actions[booked.ride] }).toMatchObject({
      ride: { state },
      actions: ["created", state],
    });
    if (booked.charge !== undefined) expect(ride?.chargeId, booked.key).toBe(booked.charge);
    expect((await lane.record(booked.key)).state, booked.key).toBe("completed");
  }
  const paid = lane.rides.filter(({ status }) => status === 201);
  // One for each ride that was paid, none for any other, and nothing left in the outbox.
  expect(sorted(books.receipts.map(({ ride }) => ride))).toEqual(sorted(paid.map(({ ride }) => ride)));
  expect(books).toMatchObject({ waiting: 0, dead: 0 });
}

async function untilReceiptsAreSent(lane: Lane): Promise<BooksState> {
  const until = Date.now() + receiptsMsMax;
  for (;;) {
    const books = await lane.books();
    if (books.waiting === 0 || Date.now() > until) return books;
    await delay(50);
  }
}

/** A charge without a ride, a ride without a charge, a ride that was charged twice, or one that says otherwise. */
async function differences(
  charges: readonly LedgerCharge[],
  rides: readonly Ride[],
): Promise<LedgerDifference<LedgerCharge, Ride>[]> {
  const found: LedgerDifference<LedgerCharge, Ride>[] = [];
  const comparison = compareLedgers({
    provider: charges,
    ours: rides,
    providerKey: ({ reference }) => reference,
    ourKey: ({ id }) => id,
    equal: (charge, ride) =>
      charge.id === ride.chargeId && (charge.status === "succeeded") === (ride.state === "paid"),
  });
  for await (const difference of comparison) found.push(difference);
  return found;
}

function sorted(texts: readonly string[]): string[] {
  return [...texts].sort();
}
