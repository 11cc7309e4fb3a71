import assert from "node:assert/strict";
import { acceptCases } from "./contract/accept.ts";
import { auditCases } from "./contract/audit.ts";
import { bustCases } from "./contract/bust.ts";
import { deadLetterCases } from "./contract/dead-letters.ts";
import { halfDoneCases } from "./contract/half-done.ts";
import type { ContractCase, StoreHarness } from "./contract/harness.ts";
import { outboxCases } from "./contract/outbox.ts";
import { progressCases } from "./contract/progress.ts";
import { reconcileCases } from "./contract/reconcile.ts";
import { reserveCases } from "./contract/reserve.ts";
import { settleCases } from "./contract/settle.ts";
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
  readonly it: (name: string, run: () => Promise<void>) => unknown;
  readonly open: () => Promise<StoreHarness<Tx>>;
  /** Names of cases that this store cannot keep, each with the reason. */
  readonly except?: Readonly<Record<string, string>>;
}): void {
  const except = options.except ?? {};
  for (const name of Object.keys(except)) {
    assert.ok(
      storeContract.some((contractCase) => contractCase.name === name),
      `there is no case "${name}" to except`,
    );
  }
  for (const contractCase of storeContract) {
    if (Object.hasOwn(except, contractCase.name)) continue;
    options.it(contractCase.name, async () => {
      const harness = await options.open();
      try {
        await contractCase.run(harness);
      } finally {
        await harness.close();
      }
    });
  }
}
