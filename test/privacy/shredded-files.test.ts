import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { openDatabase, type SqliteDatabase } from "../../src/stores/sqlite/driver.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { useDatabase } from "../stores/postgres-support.ts";
import { pragma, useFolder } from "../stores/sqlite-support.ts";
import { firstKey, ring, secondKey, service } from "./support.ts";

const shred = { tenant: "acme", by: "ada" };
const place = useFolder();

describe("the SQLite file of a tenant that was shredded, and its log", () => {
  it("hold no byte of the tenant's secret, however it was moved about, and all of the others'", async () => {
    const encryption = ring({}, [firstKey, secondKey]);
    const api = service({ store: sqliteStore(place.path), encryption });
    await api.post("k1");
    const own = [secretsIn(place.path)[0] ?? expect.fail("the tenant has no secret")];
    // So many notes that the pages are split, with a change of each.
    const others = Array.from({ length: 100 }, (_, nth) => `tenant-${nth}`);
    for (const tenant of others) await api.post("k1", "hello", tenant);
    encryption.rotate(secondKey);
    const before = new Set(secretsIn(place.path));
    for (const tenant of ["acme", ...others]) await api.latchkey.resealTenant({ tenant });
    await api.latchkey.shredTenant({ tenant: "tenant-50", by: "ada" });
    const resealed = secretsIn(place.path);
    await api.latchkey.shredTenant(shred);
    const left = secretsIn(place.path);
    own.push(...resealed.filter((secret) => !left.includes(secret)));

    expect(own).toHaveLength(2);
    const bytes = bytesOf(place.path);
    // What was replaced by a secret that is sealed anew opens with the old master key, and has to be gone as well.
    for (const gone of [...own, ...before]) expect(bytes.includes(gone)).toBe(false);
    expect(left).toHaveLength(99);
    for (const kept of left) expect(bytes.includes(kept)).toBe(true);
    await api.latchkey.close();
  });

  it("are clean only when nobody reads from the log any more, and shredding says so", async () => {
    const database = openDatabase(place.path);
    const api = service({ store: sqliteStore(database), encryption: ring() });
    database.exec("PRAGMA busy_timeout = 50"); // The real one would only make this test slow.
    await api.post("k1");
    const [secret = ""] = secretsIn(place.path);
    const reader = openDatabase(place.path);
    reader.exec("BEGIN");
    reader.prepare("SELECT count(*) FROM latchkey_notes").get();

    await expect(api.latchkey.shredTenant(shred)).rejects.toThrow(/call this again/);
    expect(bytesOf(place.path).includes(secret)).toBe(true);
    // It is gone for everybody but the reader, and for this process too.
    expect((await api.post("k1")).status).toBe(409);
    reader.exec("COMMIT");
    reader.close();
    await api.latchkey.shredTenant(shred);
    expect(bytesOf(place.path).includes(secret)).toBe(false);
    await api.latchkey.close();
    database.close();
  });

  it("cost the application's own connection nothing: deleting is as it was set", async () => {
    for (const [mode, number] of [
      ["OFF", 0],
      ["ON", 1],
      ["FAST", 2],
    ] as const) {
      const database = openDatabase(`${place.folder}/${mode}.db`);
      database.exec(`PRAGMA secure_delete = ${mode}`);
      const api = service({ store: sqliteStore(database), encryption: ring() });
      await api.post("k1");
      await api.latchkey.shredTenant(shred);
      expect(pragma(database, "secure_delete")).toBe(number);
      await api.latchkey.close();
      database.close();
    }
  });
});

describe("the Postgres tables of a tenant that was shredded", () => {
  const database = useDatabase();

  it("hold its secret for nobody who copies them, and their file does until it is written anew", async () => {
    const api = service({ store: postgresStore(database.pool()), encryption: ring() });
    await api.post("k1", "hello", "globex");
    await api.post("k1");
    const [other = "", secret = ""] = await copiedSecrets();
    await api.latchkey.shredTenant(shred);
    expect(await copiedSecrets()).toEqual([other]);

    // docs/privacy.md names what whoever runs the server has to do, because less is not enough.
    expect(await fileHolds(secret)).toBe(true);
    await database.query("VACUUM latchkey_notes");
    expect(await fileHolds(secret)).toBe(true);
    await database.query("VACUUM FULL latchkey_notes");
    expect(await fileHolds(secret)).toBe(false);
    expect(await fileHolds(other)).toBe(true);
    await api.latchkey.close();
  });

  /** As `pg_dump` reads them: what the table shows to a new snapshot. */
  async function copiedSecrets(): Promise<string[]> {
    const rows = await database.query<{ value: string }>(
      "SELECT value FROM latchkey_notes WHERE name LIKE 'secret/%' ORDER BY ctid",
    );
    return rows.map(({ value }) => value);
  }

  /** As a copy of the server's disk has it. */
  async function fileHolds(secret: string): Promise<boolean> {
    await database.query("CHECKPOINT");
    const [row] = await database.query<{ at: number }>(
      "SELECT position($1::bytea IN pg_read_binary_file(pg_relation_filepath('latchkey_notes'))) AS at",
      [Buffer.from(secret)],
    );
    return (row?.at ?? 0) > 0;
  }
});

/** What the notes hold of all tenants' secrets, as somebody reads it who only has the file. */
function secretsIn(path: string): string[] {
  const database: SqliteDatabase = openDatabase(path);
  try {
    const rows = database.prepare("SELECT value FROM latchkey_notes WHERE name LIKE 'secret/%'").all();
    return rows.map((row) => Buffer.from((row as { value: Uint8Array }).value).toString());
  } finally {
    database.close();
  }
}

/** The file and its log, as a copy of the disk would have them. */
function bytesOf(path: string): Buffer {
  const files = [path, `${path}-wal`].filter((file) => existsSync(file));
  return Buffer.concat(files.map((file) => readFileSync(file)));
}
