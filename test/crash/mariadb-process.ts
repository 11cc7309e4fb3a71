// One of several processes whose clients ask for the same rides and charges while MariaDB is killed. A ride commits with
// its phase; a charge is made at a provider that knows nothing of keys. What was done and said is one line each in a file
// that outlives everybody.
import { randomUUID } from "node:crypto";
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import mysql, { type ResultSetHeader } from "mysql2/promise";
import { createLatchkey, OperationRefusedError, StoreError } from "../../src/index.ts";
import { mysqlStore } from "../../src/stores/mysql/store.ts";

const [url = "", ledger = "", clientCount = "0", leaseMs = "0"] = process.argv.slice(2);
const pool = mysql.createPool({ uri: url, connectionLimit: 16 });
const latchkey = createLatchkey({
  store: mysqlStore(pool),
  tenant: "single",
  leaseMs: Number(leaseMs),
  storeTimeoutMs: Number(leaseMs) * 0.9,
});

const kinds = {
  ride: { onCrash: "resume" },
  charge: { onCrash: "reconcile", reconcileAfterMs: 600_000 },
} as const;
type Kind = keyof typeof kinds;

const work = { ride: book, charge };
let last = Number.POSITIVE_INFINITY;

const clients = Array.from({ length: Number(clientCount) }, async (_, client) => {
  const kind: Kind = client % 2 === 0 ? "ride" : "charge";
  for (let nth = 0; nth <= last; nth += 1) await askUntilKnown(kind, `${kind}-${client}-${nth}`);
});

process.once("message", async (begun: number) => {
  // What a process that was killed has begun has an end as well.
  last = begun;
  await Promise.all(clients);
  await latchkey.close({ drainMs: 0 });
  await pool.end();
  process.disconnect();
});
process.on("disconnect", () => process.exit());

async function askUntilKnown(kind: Kind, key: string): Promise<void> {
  for (;;) {
    try {
      note("acknowledged", key, JSON.stringify(await work[kind](key)));
      return;
    } catch (error) {
      if (error instanceof OperationRefusedError && error.code === "outcome-unknown") {
        note("unknown", key);
        return;
      }
      if (!isTrouble(error)) throw error;
      await sleep(20 + Math.random() * 20);
    }
  }
}

function book(key: string) {
  return latchkey.run({ ...request(key), policy: kinds.ride }, (op) => {
    note("executed", key);
    return op.atomic("booked", async (tx) => {
      const [{ insertId }] = await tx.execute<ResultSetHeader>("INSERT INTO rides (id) VALUES (?)", [key]);
      return { key, n: insertId };
    });
  });
}

function charge(key: string) {
  return latchkey.run({ ...request(key), policy: kinds.charge }, async () => {
    const id = randomUUID();
    note("executed", key, id);
    // The provider takes a moment, in which the server may be killed.
    await sleep(Math.random() * 50);
    return { key, charge: id };
  });
}

function request(key: string) {
  return { tenant: "single", key, input: { key } };
}

/** What a server that is killed leads to, and what a client tries again after. */
function isTrouble(error: unknown): boolean {
  if (error instanceof StoreError || error instanceof OperationRefusedError) return true;
  // What the driver says within a phase goes through to the handler.
  const { code, fatal } = error as { code?: string; fatal?: boolean };
  return fatal === true || code === "ECONNREFUSED" || code === "PROTOCOL_CONNECTION_LOST";
}

function note(what: "executed" | "acknowledged" | "unknown", key: string, told = ""): void {
  appendFileSync(ledger, `${what}\t${key}\t${told}\n`);
}
