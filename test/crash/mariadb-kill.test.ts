import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import mysql, { type Pool, type RowDataPacket } from "mysql2/promise";
import { afterAll, beforeAll, expect, it } from "vitest";
import { createLatchkey } from "../../src/index.ts";
import { migrate, mysqlStore } from "../../src/stores/mysql/store.ts";
import { type MariadbServer, startOwnMariadb } from "../support/mariadb-server.ts";

const kills = 10;
const processCount = 2;
/** In each process; half of them book rides, and half of them charge. */
const clientCount = 12;
/** Enough that every kill meets all kinds of calls under way. */
const acknowledgedBetweenKills = 80;

let server: MariadbServer;
let pool: Pool;
let children: ChildProcess[] = [];
const folder = mkdtempSync(join(tmpdir(), "latchkey-mariadb-kill-"));
const ledger = join(folder, "ledger");

beforeAll(async () => {
  server = await startOwnMariadb();
  const { url } = await server.createDatabase();
  pool = mysql.createPool({ uri: url });
  await migrate(pool);
  // Without a unique key: what was executed twice is to be seen, and not to be refused.
  await pool.query(
    "CREATE TABLE rides (n BIGINT AUTO_INCREMENT PRIMARY KEY, id VARBINARY(100)) ENGINE = InnoDB",
  );
  const program = fileURLToPath(new URL("./mariadb-process.ts", import.meta.url));
  children = Array.from({ length: processCount }, () =>
    fork(program, [url, ledger, String(clientCount)], { execArgv: ["--import", "tsx"] }),
  );
  await Promise.all(children.map((child) => heard(child, "ready")));
}, 60_000);
afterAll(async () => {
  for (const child of children) child.kill("SIGKILL");
  await pool.end();
  await server.remove();
  rmSync(folder, { recursive: true, force: true });
});

it("MariaDB killed ten times under the load of two processes: nothing acknowledged is lost, and nothing has run twice", async ({
  annotate,
}) => {
  const done = Promise.all(children.map((child) => heard(child, "done")));
  for (let kill = 1; kill <= kills; kill += 1) {
    const before = entries("acknowledged").length;
    while (entries("acknowledged").length - before < acknowledgedBetweenKills) {
      await Promise.race([sleep(20), done]);
    }
    await server.kill();
    await server.start();
  }
  for (const child of children) child.send("stop");
  await done;

  const told = entries("acknowledged");
  const answers = new Map(told.map(({ key, text }) => [key, text]));
  for (const { key, text } of told) expect(text, `${key}, whoever asks`).toBe(answers.get(key));
  const unknown = new Set(entries("unknown").map(({ key }) => key));
  expect([...unknown].filter((key) => answers.has(key) || key.startsWith("ride"))).toEqual([]);

  const [rows] = await pool.query<RowDataPacket[]>("SELECT id, n FROM rides ORDER BY n");
  const rides = rows.map(({ id, n }) => ({ key: String(id), n: Number(n) }));
  const keysOf = (kind: string) => [...answers.keys()].filter((key) => key.startsWith(kind)).sort();
  expect(rides.map(({ key }) => key).sort(), "one ride for each key").toEqual(keysOf("ride"));
  const executed = entries("executed");
  const charges = executed.filter(({ key }) => key.startsWith("charge"));
  expect(charges.map(({ key }) => key).sort(), "one charge for each key").toEqual(
    [...keysOf("charge"), ...unknown].sort(),
  );
  const made = new Set([
    ...rides.map((ride) => JSON.stringify(ride)),
    ...charges.map(({ key, text }) => JSON.stringify({ key, charge: text })),
  ]);
  expect([...answers.values()].filter((answer) => !made.has(answer))).toEqual([]);
  await expectReplays(answers);
  // The kills have hit something: attempts that were rolled back, or whose answer was lost, began more than once.
  expect(executed.length - charges.length).toBeGreaterThan(rides.length);
  await annotate(`${rides.length} rides, ${charges.length} charges, of which ${unknown.size} unknown`);
}, 90_000);

/** Somebody who was not there is told the same, and executes nothing. */
async function expectReplays(answers: ReadonlyMap<string, string>): Promise<void> {
  const latchkey = createLatchkey({ store: mysqlStore(pool), tenant: "single" });
  for (const [key, answer] of answers) {
    const request = { tenant: "single", key, input: { key } };
    const replayed = await latchkey.run(request, () => expect.fail(`${key} was executed again`));
    expect(JSON.stringify(replayed), key).toBe(answer);
  }
  await latchkey.close();
}

/** Rejects if the process ends before it has said so. */
async function heard(child: ChildProcess, message: string): Promise<void> {
  const ended = once(child, "exit").then(() => Promise.reject(new Error(`ended before it was ${message}`)));
  let said: unknown;
  while (said !== message) [said] = (await Promise.race([once(child, "message"), ended])) as unknown[];
  ended.catch(() => {});
}

function entries(kind: "executed" | "acknowledged" | "unknown") {
  return readFileSync(ledger, { encoding: "utf8", flag: "a+" })
    .split("\n")
    .map((line) => line.split("\t"))
    .filter(([of]) => of === kind)
    .map(([, key = "", text = ""]) => ({ key, text }));
}
