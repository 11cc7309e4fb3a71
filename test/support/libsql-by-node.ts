import { createRequire } from "node:module";
import type { SqliteDatabase, SqliteStatement } from "../../src/stores/sqlite/store.ts";

/** The part of `node:sqlite` that is used here; the Node that runs the other tests may not have it. */
interface NodeSqlite {
  readonly DatabaseSync: new (
    path: string,
  ) => Omit<SqliteDatabase, "prepare"> & {
    readonly isTransaction: boolean;
    prepare(sql: string): SqliteStatement & { setReadBigInts(yes: boolean): void };
  };
}

const { DatabaseSync } = createRequire(import.meta.url)("node:sqlite") as NodeSqlite;

/** Node's own driver in the place of `libsql`, with what the tests use of that beside what both have. */
export default class Database extends DatabaseSync {
  #readsBigInts = false;

  get inTransaction(): boolean {
    return this.isTransaction;
  }

  defaultSafeIntegers(yes = true): this {
    this.#readsBigInts = yes;
    return this;
  }

  override prepare(sql: string) {
    const statement = super.prepare(sql);
    statement.setReadBigInts(this.#readsBigInts);
    return statement;
  }
}
