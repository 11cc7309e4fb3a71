import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { afterAll, beforeAll, expect, it } from "vitest";
import { migrate } from "../../src/stores/postgres/store.ts";
import { freshDatabase } from "../support/database.ts";

const processes = 4;
const keys = 64;
const rounds = 1_000;

let database: Awaited<ReturnType<typeof freshDatabase>>;
let pool: pg.Pool;
let children: ChildProcess[] = [];

beforeAll(async () => {
  database = await freshDatabase();
  pool = new pg.Pool({ connectionString: database.url });
  await migrate(pool);
  const program = fileURLToPath(new URL("./batch-process.ts", import.meta.url));
  children = Array.from({ length: processes }, () =>
    fork(program, [database.url], { execArgv: ["--import", "tsx"] }),
  );
  await Promise.all(children.map((child) => once(child, "message")));
}, 60_000);

afterAll(async () => {
  await Promise.all(
    children.map(async (child) => {
      const gone = once(child, "exit");
      child.kill();
      await gone;
    }),
  );
  await pool.end();
  await database.drop();
});

it(`${processes} processes reserve the same ${keys} keys at once, ${rounds} rounds: one winner for each key, no deadlock`, async () => {
  for (let round = 0; round < rounds; round += 1) {
    const heard = children.map((child) => once(child, "message") as Promise<[Answer[]]>);
    for (const child of children) child.send({ round, keys });
    const answers = (await Promise.all(heard)).flatMap(([each]) => each);
    const winners = answers.filter(({ kind }) => kind === "executed");
    expect(new Set(winners.map(({ key }) => key)).size, `round ${round}`).toBe(keys);
    expect(winners, `round ${round}`).toHaveLength(keys);
    const others = new Set(answers.map(({ kind }) => kind));
    for (const kind of ["executed", "inFlight", "replay"]) others.delete(kind);
    expect([...others], `round ${round}`).toEqual([]);
  }
  // The server's own count, since a deadlock that was retried would not be seen from here.
  await pool.query("SELECT pg_stat_clear_snapshot()");
  const { rows } = await pool.query(
    "SELECT deadlocks::int AS deadlocks, xact_commit > 1000 AS counted FROM pg_stat_database WHERE datname = current_database()",
  );
  expect(rows).toEqual([{ deadlocks: 0, counted: true }]);
}, 150_000);

interface Answer {
  readonly key: string;
  readonly kind: string;
}
