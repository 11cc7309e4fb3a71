import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createLatchkey, type Latchkey, type PolicyInput } from "../../src/index.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { relay } from "../../src/workers/workers.ts";

// What docs/operations.md says about a restore to an earlier time, and about how to protect oneself from it.

let folder: string;
let latchkey: Latchkey;
/** The downstream keys that the provider has seen, with the operation that they came from. */
let charges: { readonly key: string; readonly downstream: string }[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "latchkey-restore-"));
  charges = [];
  latchkey = open("live.db");
});
afterEach(async () => {
  await latchkey.close();
  rmSync(folder, { recursive: true, force: true });
});

function open(file: string, policy: PolicyInput = {}): Latchkey {
  return createLatchkey({ store: sqliteStore(join(folder, file)), tenant: "single", ...policy });
}

/** Leaves what is running alone, unlike a copy of the file would. */
function backUp(): void {
  const database = new Database(join(folder, "live.db"));
  database.exec(`VACUUM INTO '${join(folder, "backup.db")}'`);
  database.close();
}

async function restore(policy: PolicyInput = {}): Promise<void> {
  await latchkey.close();
  latchkey = open("backup.db", policy);
}

function pay(key: string): Promise<unknown> {
  return latchkey.run({ tenant: "acme", key, input: { amount: 500 } }, async (op) => {
    await op.effect(
      "charged",
      ({ idempotencyKey }) => void charges.push({ key, downstream: idempotencyKey }),
    );
    return op.atomic("paid", async (tx) => {
      await op.enqueue(tx, "receipt.send", { key });
      return { paid: key };
    });
  });
}

const timesCharged = (key: string) => charges.filter((charge) => charge.key === key).length;

describe("a restore to an earlier time", () => {
  test("what was done before the backup is replayed", async () => {
    await pay("before");
    backUp();
    await restore();
    expect(await pay("before")).toEqual({ paid: "before" });
    expect(timesCharged("before")).toBe(1);
  });

  test("what was done after the backup is done again, under another downstream key", async () => {
    backUp();
    await pay("after");
    await restore();
    await pay("after");
    expect(timesCharged("after")).toBe(2);
    expect(new Set(charges.map(({ downstream }) => downstream)).size).toBe(2);
  });

  test("a message that was delivered after the backup is delivered again, under the same key", async () => {
    const delivered: string[] = [];
    const deliverAll = () =>
      relay(latchkey, { deliver: async ({ key }) => void delivered.push(key) }).runOnce();
    await pay("before");
    backUp();
    await deliverAll();
    await restore();
    await deliverAll();
    expect(delivered).toHaveLength(2);
    expect(new Set(delivered).size).toBe(1);
  });

  test("nothing that was first sent before it runs again where late arrivals are refused", async () => {
    const [before, after] = [uuidV7(Date.now()), uuidV7(Date.now())];
    await pay(before);
    backUp();
    await pay(after);
    const restoredAt = Date.now();
    // The operator waits until there is an age that no request from before the restore has.
    await expect.poll(() => Date.now() - restoredAt).toBeGreaterThan(20);
    const requestAgeMsMax = Date.now() - restoredAt;
    await restore({ lateArrivals: "reject", requestAgeMsMax, clockSkewMs: 0 });

    await expect(pay(after)).rejects.toMatchObject({ code: "late-arrival" });
    expect(timesCharged(after)).toBe(1);
    expect(await pay(before)).toEqual({ paid: before });
    const fresh = uuidV7(Date.now() + 1_000); // From a clock that is ahead: nobody knows how slow this machine is.
    await restore({ lateArrivals: "reject", requestAgeMsMax, clockSkewMs: 2_000 });
    expect(await pay(fresh)).toEqual({ paid: fresh });
  });
});

/** Random enough for a test. */
function uuidV7(ms: number): string {
  const time = ms.toString(16).padStart(12, "0");
  const random = Math.floor(Math.random() * 16 ** 12)
    .toString(16)
    .padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-${random}`;
}
