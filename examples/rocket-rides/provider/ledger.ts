import { randomUUID } from "node:crypto";
import { existsSync, fsyncSync, mkdirSync, openSync, readFileSync, writeSync } from "node:fs";
import { dirname } from "node:path";

/** A charge as the provider keeps it. Nothing about it ever changes. */
export interface LedgerCharge {
  readonly id: string;
  readonly status: "succeeded" | "declined";
  readonly amount: number;
  readonly currency: string;
  /** What the caller calls the thing that is paid for. */
  readonly reference: string;
  /** As it was sent; null if it was not. */
  readonly idempotencyKey: string | null;
}

/** One line of JSON for each charge, on the disk before anybody hears of it: money outlives a process. */
export class Ledger {
  readonly #charges: LedgerCharge[] = [];
  readonly #file: number;

  constructor(path: string) {
    mkdirSync(dirname(path), { recursive: true });
    if (existsSync(path)) {
      for (const line of readFileSync(path, "utf8").split("\n")) {
        if (line !== "") this.#charges.push(JSON.parse(line));
      }
    }
    this.#file = openSync(path, "a");
  }

  add(charge: Omit<LedgerCharge, "id">): LedgerCharge {
    const entry = { id: `ch_${randomUUID()}`, ...charge };
    writeSync(this.#file, `${JSON.stringify(entry)}\n`);
    fsyncSync(this.#file);
    this.#charges.push(entry);
    return entry;
  }

  list(filter: { readonly reference?: string | null }): readonly LedgerCharge[] {
    const { reference } = filter;
    if (reference === undefined || reference === null) return this.#charges;
    return this.#charges.filter((charge) => charge.reference === reference);
  }

  withKey(idempotencyKey: string): LedgerCharge | undefined {
    return this.#charges.find((charge) => charge.idempotencyKey === idempotencyKey);
  }
}
