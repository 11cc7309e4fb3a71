import { randomUUID } from "node:crypto";
import type pg from "pg";
import { describe, expect, it } from "vitest";
import type { Store } from "../../src/core/store.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { complete, leaseOf, request, spied, useDatabase } from "./postgres-support.ts";

const database = useDatabase();

/** A store that tells under which names its statements go out. */
function named(pool: pg.Pool) {
  const names: (string | undefined)[] = [];
  const store = postgresStore(spied(pool, (_text, name) => void names.push(name)));
  return { store, names };
}

async function execute(store: Store): Promise<string> {
  const lease = await leaseOf(store, request({ key: randomUUID() }));
  return (await store.settle(lease, complete)).kind;
}

/** What a transaction pool makes of the only connection. */
const troubles: Readonly<Record<string, (pool: pg.Pool) => Promise<unknown>>> = {
  "a connection does not know them": (pool) => pool.query("DEALLOCATE ALL"),
  // The connection is new to the driver, and old to the server.
  async "somebody else has taken the name"(pool) {
    const client = await pool.connect();
    (client as unknown as { connection: { parsedStatements: object } }).connection.parsedStatements = {};
    client.release();
  },
};

describe("statements with a name", () => {
  it("are planned once for each connection", async () => {
    const pool = database.pool({ max: 1 });
    const { store, names } = named(pool);
    for (let operations = 0; operations < 3; operations += 1) await execute(store);
    expect(new Set(names).size).toBe(2);
    expect(names).not.toContain(undefined);
    const { rows } = await pool.query("SELECT name FROM pg_prepared_statements");
    expect(rows.map(({ name }) => name).sort()).toEqual([...new Set(names)].sort());
  });

  it.each(Object.entries(troubles))(
    "are sent without one from then on when %s, and nothing is lost by it",
    async (_trouble, make) => {
      const pool = database.pool({ max: 1 });
      const { store, names } = named(pool);
      await execute(store);
      await make(pool);
      names.length = 0;
      expect(await execute(store)).toBe("settled");
      expect(names).toEqual([expect.any(String), undefined, undefined]);
    },
  );

  it("leave the errors of the statement itself alone", async () => {
    const pool = database.pool({ max: 1 });
    const { store, names } = named(pool);
    await execute(store);
    names.length = 0;
    await expect(store.reserve(request({ key: "half of a \0 character" }))).rejects.toThrow(
      "invalid byte sequence",
    );
    await execute(store);
    expect(names).not.toContain(undefined);
  });
});
