import { appendFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import mysql, { type Pool, type ResultSetHeader, type RowDataPacket } from "mysql2/promise";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createLatchkey, type Latchkey, OperationRefusedError, StoreError } from "../../src/index.ts";
import { type MysqlConnection, migrate, mysqlStore } from "../../src/stores/mysql/store.ts";
import { type MariadbServer, startOwnMariadb } from "../support/mariadb-server.ts";

const kills = 10;
const clientCount = 12;
/** Enough that every kill meets all kinds of calls under way. */
const acknowledgedBetweenKills = 40;

let server: MariadbServer;
let pool: Pool;
let latchkey: Latchkey<MysqlConnection>;
const folder = mkdtempSync(join(tmpdir(), "latchkey-mariadb-kill-"));
const ledger = join(folder, "ledger");

beforeAll(async () => {
  server = await startOwnMariadb();
  const database = await server.createDatabase();
  pool = mysql.createPool({ uri: database.url, connectionLimit: 16 });
  await migrate(pool);
  // Without a unique key: what was executed twice is to be seen, and not to be refused.
  await pool.query(
    "CREATE TABLE rides (n BIGINT AUTO_INCREMENT PRIMARY KEY, id VARBINARY(100)) ENGINE = InnoDB",
  );
  latchkey = createLatchkey({
    store: mysqlStore(pool),
    tenant: "single",
    leaseMs: 1_000,
    storeTimeoutMs: 900,
    onCrash: "resume",
  });
});
afterAll(async () => {
  await latchkey.close({ drainMs: 0 });
  await pool.end();
  await server.remove();
  rmSync(folder, { recursive: true, force: true });
});

it("MariaDB killed ten times under load: nothing acknowledged is lost, and nothing has run twice", async () => {
  let isOver = false;
  const acknowledged = () => entries("acknowledged").length;
  const clients = Array.from({ length: clientCount }, async (_, client) => {
    for (let nth = 0; !isOver; nth += 1) await bookUntilKnown(`${client}-${nth}`);
  });
  const stopped = Promise.all(clients);
  for (let kill = 1; kill <= kills; kill += 1) {
    const before = acknowledged();
    while (acknowledged() - before < acknowledgedBetweenKills) await Promise.race([sleep(5), stopped]);
    await server.kill();
    await server.start();
  }
  isOver = true;
  // Every key that was begun gets its answer: none is wedged.
  await stopped;

  const told = entries("acknowledged");
  expect(told.length).toBeGreaterThanOrEqual(kills * acknowledgedBetweenKills);
  const [rows] = await pool.query<RowDataPacket[]>("SELECT id, n FROM rides ORDER BY n");
  const booked = rows.map(({ id, n }) => ({ key: String(id), n: Number(n) }));
  expect(booked.map(({ key }) => key).sort(), "one ride for each key").toEqual(
    told.map(({ key }) => key).sort(),
  );
  for (const { key, answer } of told) {
    const replayed = await latchkey.run(operation(key), () => expect.fail(`${key} was executed again`));
    expect(JSON.stringify(replayed), key).toBe(answer);
    expect(booked, key).toContainEqual(JSON.parse(answer));
  }
  // The kills have hit something: attempts that were rolled back, or whose answer was lost, began more than once.
  expect(entries("executed").length).toBeGreaterThan(told.length);
}, 60_000);

const operation = (key: string) => ({ tenant: "single", key, input: { key } });

/** A client that asks until it is told what became of its ride. */
async function bookUntilKnown(key: string): Promise<void> {
  for (;;) {
    try {
      const answer = await latchkey.run(operation(key), async (op) => {
        note("executed", key);
        return op.atomic("booked", async (tx) => {
          const [{ insertId }] = await tx.execute<ResultSetHeader>("INSERT INTO rides (id) VALUES (?)", [
            key,
          ]);
          return { key, n: insertId };
        });
      });
      note("acknowledged", key, JSON.stringify(answer));
      return;
    } catch (error) {
      if (!isTrouble(error)) throw error;
      await sleep(20 + Math.random() * 20);
    }
  }
}

/** What a server that is killed leads to, and what a client tries again after. */
function isTrouble(error: unknown): boolean {
  if (error instanceof StoreError || error instanceof OperationRefusedError) return true;
  // What the driver says within a phase goes through to the handler.
  const { code, fatal } = error as { code?: string; fatal?: boolean };
  return fatal === true || code === "ECONNREFUSED" || code === "PROTOCOL_CONNECTION_LOST";
}

type Kind = "executed" | "acknowledged";

function note(kind: Kind, key: string, answer = ""): void {
  appendFileSync(ledger, `${kind}\t${key}\t${answer}\n`);
}

function entries(kind: Kind): { readonly key: string; readonly answer: string }[] {
  return readFileSync(ledger, { encoding: "utf8", flag: "a+" })
    .split("\n")
    .map((line) => line.split("\t"))
    .filter(([of]) => of === kind)
    .map(([, key = "", answer = ""]) => ({ key, answer }));
}
