import pg from "pg";
import { expect, it } from "vitest";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { complete, leaseOf, request, useDatabase } from "./postgres-support.ts";

const database = useDatabase();

it("a generation names the life of the server, the table and the last bust, so that no other database has it", async () => {
  const generations: string[] = [];
  for (const schema of ["blue", "green"]) {
    await database.query(`CREATE SCHEMA ${schema}`);
    const pool = new pg.Pool({ connectionString: database.url, options: `-c search_path=${schema}` });
    await migrate(pool);
    const store = postgresStore(pool, { listen: true });
    const told = await store.bustGeneration?.();
    expect(told?.generation).toMatch(/^[\d.]+:[0-9A-F]{8}:\d+:\d+:[0-9a-f-]{36}$/);
    generations.push(...(told?.generation.split(":").slice(3) ?? []));
    await store.close();
    await pool.end();
  }
  expect(new Set(generations).size).toBe(4);
});

it("a bust that is rolled back leaves the generation as it was", async () => {
  const pool = database.pool();
  const store = postgresStore(pool, { listen: true });
  const first = request();
  await store.settle(await leaseOf(store, first), complete);
  const before = await store.bustGeneration?.();
  // The audit trail is the last thing that the statement writes.
  await database.query("ALTER TABLE latchkey_audit ADD CONSTRAINT full_trail CHECK (false) NOT VALID");
  await expect(store.bust(first, { by: "ada", reason: "wrong" })).rejects.toThrow();
  await database.query("ALTER TABLE latchkey_audit DROP CONSTRAINT full_trail");
  expect((await store.bustGeneration?.())?.generation).toBe(before?.generation);
  await store.close();
});

it("tables of an older version are told apart from none", async () => {
  const pool = database.pool();
  const store = postgresStore(pool, { listen: true });
  await database.query("ALTER FUNCTION latchkey_bust_generation RENAME TO latchkey_hidden");
  await expect(store.bustGeneration?.()).rejects.toThrow(/older version: run migrate/);
  await database.query("ALTER FUNCTION latchkey_hidden RENAME TO latchkey_bust_generation");
  await store.close();
});
