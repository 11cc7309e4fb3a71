import { randomUUID } from "node:crypto";
import { appendFileSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { dirname } from "node:path";

export interface Charge {
  readonly id: string;
  readonly amount: number;
  readonly currency: string;
  readonly refunded: boolean;
}

type Entry =
  | { readonly type: "charge"; readonly id: string; readonly amount: number; readonly currency: string }
  | { readonly type: "refund"; readonly id: string; readonly charge: string };

/** The books: one line of JSON for each thing that happened, never changed afterwards. */
export function openLedger(path: string) {
  mkdirSync(dirname(path), { recursive: true });
  const charges = new Map<string, Charge>();
  const apply = (entry: Entry) => {
    if (entry.type === "charge") {
      const { id, amount, currency } = entry;
      charges.set(id, { id, amount, currency, refunded: false });
    } else {
      const charge = charges.get(entry.charge);
      if (charge !== undefined) charges.set(charge.id, { ...charge, refunded: true });
    }
  };
  if (existsSync(path)) {
    for (const line of readFileSync(path, "utf8").split("\n")) if (line !== "") apply(JSON.parse(line));
  }
  const write = (entry: Entry) => {
    appendFileSync(path, `${JSON.stringify(entry)}\n`);
    apply(entry);
  };

  return {
    list: () => [...charges.values()],
    charge(order: { readonly amount: number; readonly currency: string }): Charge {
      const id = `ch_${randomUUID()}`;
      write({ type: "charge", id, ...order });
      return { id, ...order, refunded: false };
    },
    refund(chargeId: string) {
      const charge = charges.get(chargeId);
      if (charge === undefined) return "unknown charge";
      if (charge.refunded) return "already refunded";
      const id = `re_${randomUUID()}`;
      write({ type: "refund", id, charge: chargeId });
      return { id, charge: chargeId, amount: charge.amount, currency: charge.currency };
    },
  };
}
