import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import pg from "pg";
import { describe, expect, it } from "vitest";
import type { Store } from "../../src/core/store.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { freshDatabase } from "../support/database.ts";

/** The statement that docs/policies.md gives to operators, taken from there. */
const page = readFileSync(new URL("../../docs/policies.md", import.meta.url), "utf8");
const statement =
  /```sql\n(UPDATE latchkey_records[^`]*)```/.exec(page)?.[1]?.replace("'…'", "'by-hand'") ?? "";

const request = {
  scope: "acme",
  key: "by-hand",
  fingerprint: "v1:a",
  leaseMs: 60_000,
  retentionMs: 60_000,
  onCrash: "reconcile",
} as const;

async function expectSettledByHand(store: Store, run: (sql: string) => unknown): Promise<void> {
  const reservation = await store.reserve({ ...request, owner: "first" });
  if (reservation.kind !== "execute") throw new Error(reservation.kind);
  const suspend = { kind: "suspend", reason: "no answer", reconcileAfterMs: 0 } as const;
  await store.settle(reservation.lease, suspend);
  expect((await store.reserve({ ...request, owner: "second" })).kind).toBe("unknown");
  await run(statement);
  expect(await store.settle(reservation.lease, suspend)).toEqual({ kind: "lost" });
  expect(await store.reserve({ ...request, owner: "third" })).toMatchObject({
    kind: "execute",
    lease: { fence: 2 },
  });
}

describe("an unknown outcome that an operator settles as the documentation says", () => {
  it("on SQLite is executed by the next retry", async () => {
    const folder = mkdtempSync(join(tmpdir(), "latchkey-by-hand-"));
    const database = new Database(join(folder, "latchkey.db"));
    try {
      await expectSettledByHand(sqliteStore(database), (sql) => database.exec(sql));
    } finally {
      database.close();
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it("on Postgres is executed by the next retry", async () => {
    const database = await freshDatabase();
    const pool = new pg.Pool({ connectionString: database.url });
    try {
      await migrate(pool);
      await expectSettledByHand(postgresStore(pool), (sql) => pool.query(sql));
    } finally {
      await pool.end();
      await database.drop();
    }
  });
});
