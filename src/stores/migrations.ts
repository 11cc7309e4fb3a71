import { readdirSync, readFileSync } from "node:fs";
import { ConfigError } from "../core/errors.ts";

/** One numbered change of a store's tables. */
export interface Migration {
  id: number;
  name: string;
  sql: string;
}

/**
 * Reads the `NNNN_name.sql` files of a folder, in the order in which they are applied. Databases remember only the
 * numbers, so a gap or a number used twice would silently leave some of them behind, and is refused.
 */
export function loadMigrations(folder: URL): Migration[] {
  const files = readdirSync(folder).filter((file) => file.endsWith(".sql"));
  if (files.length === 0) throw new ConfigError(`there are no migrations in ${folder.pathname}`);
  return files.sort().map((file, index) => {
    const [, number, name] = fileNamePattern.exec(file) ?? [];
    if (number === undefined || name === undefined) {
      throw new ConfigError(`the migration ${file} must be named like 0001_what_it_does.sql`);
    }
    const id = Number(number);
    if (id !== index + 1) {
      const fault = id <= index ? "has a number that is already taken" : "leaves a gap";
      throw new ConfigError(`the migration ${file} ${fault}: number ${index + 1} comes next`);
    }
    return { id, name, sql: readFileSync(new URL(file, folder), "utf8") };
  });
}

/** As its file is called, and as people know it. */
export function idOf({ id, name }: Pick<Migration, "id" | "name">): string {
  return `${String(id).padStart(4, "0")}_${name}`;
}

/** Tables that a newer version changed may mean something that this one does not know. */
export function refuseNewer(applied: ReadonlySet<number>, newestKnown: number): void {
  const newest = Math.max(0, ...applied);
  if (newest <= newestKnown) return;
  throw new ConfigError(
    `the Latchkey tables in this database are at version ${newest}, and this Latchkey knows versions up to ` +
      `${newestKnown}: upgrade latchkey in this process`,
  );
}

/** Four digits sort as text the way they sort as numbers. */
const fileNamePattern = /^(\d{4})_(\w+)\.sql$/;
