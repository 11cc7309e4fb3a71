import assert from "node:assert/strict";
import { acceptCases } from "./contract/accept.ts";
import { auditCases } from "./contract/audit.ts";
import { bustCases } from "./contract/bust.ts";
import { deadLetterCases } from "./contract/dead-letters.ts";
import { halfDoneCases } from "./contract/half-done.ts";
import { type ContractCase, has, type Need, type StoreHarness } from "./contract/harness.ts";
import { listingCases } from "./contract/listing.ts";
import { noteCases } from "./contract/notes.ts";
import { outboxCases } from "./contract/outbox.ts";
import { progressCases } from "./contract/progress.ts";
import { reconcileCases } from "./contract/reconcile.ts";
import { reserveCases } from "./contract/reserve.ts";
import { settleCases } from "./contract/settle.ts";
import { tenantCases } from "./contract/tenants.ts";
import { transactCases } from "./contract/transact.ts";
import { upkeepCases } from "./contract/upkeep.ts";

/** Everything that a store must do, case by case. */
export const storeContract: readonly ContractCase[] = [
  ...reserveCases,
  ...settleCases,
  ...acceptCases,
  ...progressCases,
  ...halfDoneCases,
  ...transactCases,
  ...outboxCases,
  ...deadLetterCases,
  ...upkeepCases,
  ...reconcileCases,
  ...bustCases,
  ...auditCases,
  ...listingCases,
  ...tenantCases,
  ...noteCases,
];

/**
 * Runs the whole contract against a store, with any test runner that has an `it`. A store with transactions also needs
 * a `business` table, to see what commits with them.
 *
 * @example
 * ```ts
 * import { it } from "vitest";
 * runStoreContract({ it, open: async () => ({ store: myStore(), passTime: sleep, close: async () => {} }) });
 * ```
 */
export function runStoreContract<Tx>(options: {
  readonly it: (name: string, run: (context?: Skipping) => Promise<void>) => unknown;
  readonly open: () => Promise<StoreHarness<Tx>>;
  /** What this store does not have, each with the reason: the cases that need it are shown as skipped, with that. */
  readonly lacks?: Partial<Readonly<Record<Need, string>>>;
  /** Names of cases that this store cannot keep, each with the reason. */
  readonly except?: Readonly<Record<string, string>>;
}): void {
  const { lacks = {}, except = {} } = options;
  for (const name of Object.keys(except)) {
    assert.ok(
      storeContract.some((contractCase) => contractCase.name === name),
      `there is no case "${name}" to except`,
    );
  }
  for (const contractCase of storeContract) {
    const { name, needs } = contractCase;
    const reason = except[name] ?? (needs && lacks[needs]);
    if (reason !== undefined) {
      options.it(name, async (context) => void context?.skip?.(reason));
      continue;
    }
    options.it(name, async () => {
      const harness = await options.open();
      try {
        if (needs !== undefined)
          assert.ok(has(harness.store, needs), `without ${needs}: say so in \`lacks\``);
        await contractCase.run(harness);
      } finally {
        await harness.close();
      }
    });
  }
  options.it("a store lacks what it is said to lack, and nothing else", async () => {
    const harness = await options.open();
    try {
      const missing = needsOfCases().filter((need) => !has(harness.store, need));
      assert.deepEqual(
        missing,
        needsOfCases().filter((need) => Object.hasOwn(lacks, need)),
      );
    } finally {
      await harness.close();
    }
  });
}

/** What a test runner hands to a test, as vitest and node:test do; others leave the skipped cases empty. */
interface Skipping {
  skip?(reason: string): unknown;
}

function needsOfCases(): Need[] {
  return [...new Set(storeContract.flatMap(({ needs }) => needs ?? []))].sort();
}
