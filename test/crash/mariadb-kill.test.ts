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
const leaseMs = 1_000;
const processCount = 2;
/** In each process; half of them book rides, and half of them charge. */
const clientCount = 12;
/** Enough that every kill meets all kinds of calls under way. */
const acknowledgedBetweenKills = 40;

let server: MariadbServer;
let url: string;
let pool: Pool;
const processes: ChildProcess[] = [];
const folder = mkdtempSync(join(tmpdir(), "latchkey-mariadb-kill-"));
const ledger = join(folder, "ledger");

beforeAll(async () => {
  server = await startOwnMariadb();
  ({ url } = await server.createDatabase());
  pool = mysql.createPool({ uri: url });
  await migrate(pool);
  // Without a unique key: what was executed twice is to be seen, and not to be refused.
  await pool.query(
    "CREATE TABLE rides (n BIGINT AUTO_INCREMENT PRIMARY KEY, id VARBINARY(100)) ENGINE = InnoDB",
  );
  for (let nth = 0; nth < processCount; nth += 1) startProcess();
}, 60_000);
afterAll(async () => {
  await Promise.all(processes.map(killProcess));
  await pool.end();
  await server.remove();
  rmSync(folder, { recursive: true, force: true });
});

function startProcess(): void {
  const program = fileURLToPath(new URL("./mariadb-process.ts", import.meta.url));
  const args = [url, ledger, String(clientCount), String(leaseMs)];
  processes.push(fork(program, args, { execArgv: ["--import", "tsx"] }));
}

async function killProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGKILL");
  await once(child, "exit");
}

it("MariaDB killed ten times under the load of two processes, which are killed as well: nothing acknowledged is lost, and nothing has run twice", async ({
  annotate,
}) => {
  for (let kill = 1; kill <= kills; kill += 1) {
    const before = acknowledgedKeys().size;
    while (acknowledgedKeys().size - before < acknowledgedBetweenKills) await sleep(20);
    if (kill % 2 === 0) {
      // Whoever knew what became of a charge goes with the server, and leases run out before it is back.
      const [gone] = processes.splice(0, 1) as [ChildProcess];
      await Promise.all([server.kill(), killProcess(gone)]);
      startProcess();
      await sleep(leaseMs);
    } else {
      await server.kill();
    }
    await server.start();
  }
  // No key is wedged, or they would not come to an end.
  await Promise.all(processes.map(stopProcess));

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
  const charged = charges.map(({ key }) => key);
  expect(charged.filter((key, nth) => charged.indexOf(key) !== nth)).toEqual([]);
  // Whether one that is unknown was made depends on whether the answer to its reservation came through.
  expect(charged.filter((key) => !unknown.has(key)).sort()).toEqual(keysOf("charge"));
  const made = new Set([
    ...rides.map((ride) => JSON.stringify(ride)),
    ...charges.map(({ key, text }) => JSON.stringify({ key, charge: text })),
  ]);
  expect([...answers.values()].filter((answer) => !made.has(answer))).toEqual([]);
  await expectReplays(answers);
  // The kills have hit something: rides that were rolled back, or whose answer was lost, began more than once, and what
  // became of some charges nobody knew any more.
  expect(executed.length - charges.length).toBeGreaterThan(rides.length);
  expect(unknown.size).toBeGreaterThan(0);
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

/** Not before everything that anybody has begun has an end. */
async function stopProcess(child: ChildProcess): Promise<void> {
  const exited = once(child, "exit");
  child.send(Math.max(...entries("executed").map(({ key }) => Number(key.split("-").at(-1)))));
  expect(await exited).toEqual([0, null]);
}

function acknowledgedKeys(): ReadonlySet<string> {
  return new Set(entries("acknowledged").map(({ key }) => key));
}

function entries(kind: "executed" | "acknowledged" | "unknown") {
  return readFileSync(ledger, { encoding: "utf8", flag: "a+" })
    .split("\n")
    .map((line) => line.split("\t"))
    .filter(([of]) => of === kind)
    .map(([, key = "", text = ""]) => ({ key, text }));
}
