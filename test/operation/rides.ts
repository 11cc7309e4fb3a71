import { afterEach, beforeEach } from "vitest";
import {
  createLatchkey,
  type Latchkey,
  type LatchkeyEvent,
  type Operation,
  OperationRefusedError,
} from "../../src/index.ts";
import type { Business } from "../support/business.ts";

export const id = { scope: "acme", key: "key-1" };
export const request = { tenant: "acme", key: "key-1", input: { ride: 1 } };

export class Crash extends Error {}

export function crash(): never {
  throw new Crash("the process died here");
}

/** Rides that are booked in a business of its own for each test, under one key. */
export function useRides(open: () => Promise<Business>) {
  let business: Business;
  let latchkey: Latchkey;
  let events: LatchkeyEvent[];

  beforeEach(async () => {
    business = await open();
    events = [];
    latchkey = start();
  });
  afterEach(async () => {
    await latchkey.close();
    await business.close();
  });

  function start(store = business.store): Latchkey {
    return createLatchkey({
      store,
      tenant: "single",
      onCrash: "resume",
      leaseMs: 400,
      onEvent: (event) => events.push(event),
    });
  }

  return {
    get business() {
      return business;
    },
    get latchkey() {
      return latchkey;
    },
    get events() {
      return events;
    },
    /** Another process on the same records. */
    start,
    run: <T>(work: (op: Operation) => T | Promise<T>) => latchkey.run(request, work),
    state: async () => (await business.store.read(id)).record,
    book: (op: Operation, name: string) =>
      op.atomic(name, async (tx) => {
        await business.book(tx, name);
        return { ride: name };
      }),
  };
}

/** Calls again until whoever holds the key is found to be gone. */
export async function retried<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof OperationRefusedError) || error.code !== "in-flight") throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}
