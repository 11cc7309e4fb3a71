import type pg from "pg";
import { beforeAll, describe, expect, it } from "vitest";
import type { ArrayParameter, BatchParameter } from "../../src/stores/postgres/arrays.ts";
import { type PgPool, pgDatabase } from "../../src/stores/postgres/pg.ts";
import { isTrial, useDatabase } from "./postgres-support.ts";

const database = useDatabase();

beforeAll(async () => {
  await database.query(`
    CREATE FUNCTION echo(
      flag bool, number float8, texts text[], ints int4[], floats float8[], bodies bytea[], rows tid[])
    RETURNS TABLE (place int4, flag bool, number float8, text text, "int" int4, "float" float8, body bytea, "row" text)
    LANGUAGE sql AS $$
      SELECT c.position::int4, $1, $2, c.text, c.int, c.float, c.body, c.row::text
      FROM unnest($3, $4, $5, $6, $7) WITH ORDINALITY AS c (text, int, float, body, "row", position)
    $$;
    CREATE FUNCTION refuse(texts text[]) RETURNS bool LANGUAGE plpgsql AS $$
    BEGIN
      RAISE EXCEPTION 'refused' USING ERRCODE = '22023';
    END $$`);
});

const columns = {
  texts: ["plain", "", null, "Grüße, 日本語, 😀, \"\\{},'", "x".repeat(300)],
  ints: [0, -1, null, 2147483647, -2147483648],
  floats: [0.1, -1e300, null, 5e-324, 86_400_000],
  bodies: [Buffer.of(0, 255, 92), Buffer.alloc(0), null, Buffer.alloc(70_000, 7), Buffer.from("\\x00")],
  rows: ["(0,1)", "(4294967294,8192)", null, "(2147483648,291)", "(70000,7)"],
} as const;

const array = (type: ArrayParameter["type"], values: ArrayParameter["values"]): ArrayParameter => ({
  type,
  values,
});

const everything: readonly BatchParameter[] = [
  true,
  0.5,
  array("text", columns.texts),
  array("int4", columns.ints),
  array("float8", columns.floats),
  array("bytea", columns.bodies),
  array("tid", columns.rows),
];

const echoed = columns.texts.map((text, index) => ({
  place: index + 1,
  flag: true,
  number: 0.5,
  text,
  int: columns.ints[index],
  float: columns.floats[index],
  body: columns.bodies[index],
  row: columns.rows[index],
}));

const echo = { name: "echo" };

/** A pool, and which of its statements went the short way. */
function watched(pool: pg.Pool, query = (statement: never) => pool.query(statement)) {
  const ways: ("short" | "plain")[] = [];
  const passed = {
    query(statement: never) {
      const { text } = statement as { text: string };
      if (!isTrial(text)) ways.push("submit" in (statement as object) ? "short" : "plain");
      return query(statement);
    },
    connect: () => pool.connect(),
    on: () => {},
  };
  return { ways, db: pgDatabase(passed as unknown as PgPool) };
}

/** The first call has to find out whether there is a short way. */
async function ready({ ways, db }: ReturnType<typeof watched>): Promise<void> {
  await expect
    .poll(async () => {
      await db.call("SELECT 1 AS one");
      return ways.at(-1);
    })
    .toBe("short");
}

describe("a call over pg", () => {
  it("answers the short way as it does the plain way, whatever the parameters and the columns are", async () => {
    const pool = watched(database.pool());
    expect(await pool.db.batch(echo, everything)).toEqual(echoed);
    expect(pool.ways).toEqual(["plain"]);
    await ready(pool);
    expect(await pool.db.batch(echo, everything)).toEqual(echoed);
    expect(await pool.db.batch(echo, everything)).toEqual(echoed);
    expect(pool.ways.slice(-2)).toEqual(["short", "short"]);
  });

  it("takes arrays that are not there, single values, and answers without rows or columns", async () => {
    const pool = watched(database.pool());
    await ready(pool);
    const missing = everything.map((parameter) =>
      typeof parameter === "object" && parameter.type !== "text" ? array(parameter.type, null) : parameter,
    );
    expect(await pool.db.batch(echo, missing)).toMatchObject(
      columns.texts.map((text) => ({ text, int: null })),
    );
    expect(
      await pool.db.call(
        "SELECT $1::text AS a, $2::bytea AS b, $3::float8 AS c, $4::bool AS d, $5::text AS e",
        ["é", Buffer.of(1, 0), 1.5, false, null],
      ),
    ).toEqual([{ a: "é", b: Buffer.of(1, 0), c: 1.5, d: false, e: null }]);
    expect(await pool.db.call("SELECT 1 AS one WHERE $1::bool", [false])).toEqual([]);
    expect(await pool.db.call("SELECT FROM latchkey_records")).toEqual([]);
  });

  it("keeps the answers of many calls at once apart", async () => {
    const pool = watched(database.pool({ max: 3 }));
    await ready(pool);
    const numbers = Array.from({ length: 200 }, (_, number) => number);
    const answers = await Promise.all(
      numbers.map((number) =>
        pool.db.call("SELECT $1::int4 AS number, $2::text AS text", [number, `n${number}`]),
      ),
    );
    expect(answers).toEqual(numbers.map((number) => [{ number, text: `n${number}` }]));
  });

  it("is described anew on each connection: two databases may answer one text differently", async () => {
    const other = database.pool({ options: "-c search_path=other,public", max: 1 });
    await other.query(
      "CREATE SCHEMA other; CREATE FUNCTION other.answer() RETURNS text LANGUAGE sql AS 'SELECT ''b'''",
    );
    const first = database.pool({ max: 1 });
    await first.query("CREATE FUNCTION public.answer() RETURNS int4 LANGUAGE sql AS 'SELECT 1'");
    const pools = [watched(first), watched(other)];
    for (const pool of pools) await ready(pool);
    for (let times = 0; times < 3; times += 1) {
      expect(await pools[0]?.db.call("SELECT answer() AS answer")).toEqual([{ answer: 1 }]);
      expect(await pools[1]?.db.call("SELECT answer() AS answer")).toEqual([{ answer: "b" }]);
    }
  });

  it("is described where the driver itself has prepared it", async () => {
    const names: (string | undefined)[] = [];
    const pool = database.pool({ max: 1 });
    const both = watched(pool, (statement) => {
      const { name, text } = statement as { name?: string; text: string };
      if (!isTrial(text)) names.push(name);
      return pool.query(statement);
    });
    expect(await both.db.batch(echo, everything)).toEqual(echoed);
    await ready(both);
    expect(await both.db.batch(echo, everything)).toEqual(echoed);
    expect(names).not.toContain(undefined);
  });

  it("rejects with the server's error, and the next one is not affected", async () => {
    const pool = watched(database.pool({ max: 1 }));
    await ready(pool);
    await expect(pool.db.batch({ name: "refuse" }, [array("text", ["a"])])).rejects.toMatchObject({
      code: "22023",
    });
    await expect(pool.db.call("SELECT $1::text", ["\0"])).rejects.toMatchObject({ code: "22021" });
    expect(await pool.db.call("SELECT 1 AS one")).toEqual([{ one: 1 }]);
    expect(pool.ways.slice(-3)).toEqual(["short", "short", "short"]);
  });

  it("rejects when it takes too long, and when its connection is lost", async () => {
    const slow = pgDatabase(database.pool({ max: 1, query_timeout: 100 }));
    for (let calls = 0; calls < 3; calls += 1) {
      await expect(slow.call("SELECT pg_sleep(10)")).rejects.toThrow(/timeout/);
    }
    const pool = watched(database.pool({ max: 1 }));
    await ready(pool);
    await expect(pool.db.call("SELECT pg_terminate_backend(pg_backend_pid())")).rejects.toThrow();
    expect(await pool.db.call("SELECT 1 AS one")).toEqual([{ one: 1 }]);
  });
});

describe("where there is no short way", () => {
  it("a driver that only looks like pg is sent plain statements", async () => {
    const pool = database.pool();
    const ways: string[] = [];
    const lookalike = {
      query(statement: never) {
        ways.push("submit" in (statement as object) ? "short" : "plain");
        return pool.query(statement);
      },
      connect: async () => ({ release() {}, on() {}, query: () => {} }),
      on: () => {},
    };
    const db = pgDatabase(lookalike as unknown as PgPool);
    for (let calls = 0; calls < 5; calls += 1) expect(await db.batch(echo, everything)).toEqual(echoed);
    expect(ways).toEqual(Array(5).fill("plain"));
  });

  it.each<[string, (pool: pg.Pool, statement: never) => Promise<unknown>]>([
    ["sends copies of statements", (pool, statement) => pool.query({ ...(statement as object) } as never)],
    [
      "takes clients, and does not wait for what is not a promise",
      async (pool, statement) => {
        const client = await pool.connect();
        try {
          return await client.query(statement);
        } finally {
          client.release();
        }
      },
    ],
  ])("somebody in between who %s gets plain ones", async (_, pass) => {
    const inner = database.pool();
    const trials: string[] = [];
    const pool = watched(inner, (statement) => {
      const { text } = statement as { text: string };
      if (isTrial(text)) trials.push(text);
      return pass(inner, statement) as never;
    });
    await expect
      .poll(async () => {
        expect(await pool.db.batch(echo, everything)).toEqual(echoed);
        return trials.length;
      })
      .toBe(1);
    for (let calls = 0; calls < 5; calls += 1) expect(await pool.db.batch(echo, everything)).toEqual(echoed);
    expect(trials.length).toBe(1);
    expect(new Set(pool.ways)).toEqual(new Set(["plain"]));
  });
});
