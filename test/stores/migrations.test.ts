import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, expect, it } from "vitest";
import { ConfigError } from "../../src/core/errors.ts";
import { loadMigrations } from "../../src/stores/migrations.ts";

const folders: string[] = [];

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

it("reads the migrations in the order of their numbers", () => {
  const folder = folderWith({
    "0002_second.sql": "SELECT 2",
    "0001_first_one.sql": "SELECT 1",
    "README.md": "",
  });
  expect(loadMigrations(folder)).toEqual([
    { id: 1, name: "first_one", sql: "SELECT 1" },
    { id: 2, name: "second", sql: "SELECT 2" },
  ]);
});

it.each([
  ["a gap", ["0001_a.sql", "0003_c.sql"], "0003_c.sql leaves a gap: number 2 comes next"],
  ["a first number above 1", ["0002_b.sql"], "0002_b.sql leaves a gap: number 1 comes next"],
  ["a number used twice", ["0001_a.sql", "0001_b.sql"], "0001_b.sql has a number that is already taken"],
  ["a name without a number", ["records.sql"], "records.sql must be named like 0001_what_it_does.sql"],
  ["a folder without migrations", [], "there are no migrations in"],
])("refuses %s", (_, files, message) => {
  const folder = folderWith(Object.fromEntries(files.map((file) => [file, "SELECT 1"])));
  expect(() => loadMigrations(folder)).toThrow(ConfigError);
  expect(() => loadMigrations(folder)).toThrow(message);
});

function folderWith(files: Readonly<Record<string, string>>): URL {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-migrations-"));
  folders.push(folder);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return pathToFileURL(`${folder}/`);
}
