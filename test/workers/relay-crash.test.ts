import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { afterEach, expect, it } from "vitest";
import type { RelayProcessOptions } from "./fixtures/relay-process.ts";
import { enqueue, type OutboxFixture, outboxStores } from "./outbox-support.ts";

const partitions = 200;
const messagesPerPartition = 500; // 100,000 together.
const laterMessages = 10; // Enqueued into each partition while the relays run.
const leaseMs = 1_500;
const batch = 250;
const killEveryMs = 1_500;
const killsMax = 12; // After these the rest is delivered in peace, so that a slow machine comes to an end as well.

let outbox: OutboxFixture | undefined;
let folder: string | undefined;
const relays: ChildProcess[] = [];

afterEach(async () => {
  await Promise.all(relays.splice(0).map(kill));
  await outbox?.close();
  if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
});

it("every message is delivered, in order within its partition, although relays are killed all the time", async () => {
  outbox = await outboxStores.postgres?.();
  if (outbox?.url === undefined) throw new Error("there is no Postgres");
  folder = mkdtempSync(join(tmpdir(), "latchkey-relay-"));
  const options: RelayProcessOptions = {
    url: outbox.url,
    ledger: join(folder, "deliveries"),
    leaseMs,
    batch,
  };
  await enqueueMany(outbox.url);
  const latchkey = outbox.open();

  relays.push(await startRelay(options), await startRelay(options));
  let kills = 0;
  let enqueued = 0;
  let killAt = Date.now() + killEveryMs;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    const counts = await latchkey.store.outbox?.counts();
    if (enqueued === laterMessages && counts?.waiting === 0) break;
    if (Date.now() < killAt || kills === killsMax) continue;
    if (enqueued < laterMessages) await enqueueLater(latchkey, messagesPerPartition + enqueued++);
    // Two kinds of death in turn: at any moment, and between a delivery and its settlement.
    const [victim] = relays.splice(0, 1);
    if (victim !== undefined) await (kills % 2 === 0 ? kill(victim) : killAfterDelivery(victim));
    kills += 1;
    relays.push(await startRelay(options));
    killAt = Date.now() + killEveryMs;
  }

  const deliveries = readDeliveries(options.ledger);
  const firstDeliveries = new Map<string, string[]>();
  const seen = new Set<string>();
  for (const { partition, place, key } of deliveries) {
    if (seen.has(key)) continue;
    seen.add(key);
    firstDeliveries.set(partition, [...(firstDeliveries.get(partition) ?? []), place]);
  }
  const inOrder = Array.from({ length: messagesPerPartition + laterMessages }, (_, n) => String(n));
  expect(firstDeliveries.size).toBe(partitions);
  for (const [partition, places] of firstDeliveries) expect(places, partition).toEqual(inOrder);
  expect(seen.size).toBe(partitions * (messagesPerPartition + laterMessages));
  // What the test is about did happen.
  expect(kills).toBeGreaterThanOrEqual(laterMessages);
  expect(deliveries.length).toBeGreaterThan(seen.size);
  // A crash costs a batch at most; twice that leaves room for a relay that was too slow for its lease.
  expect(deliveries.length).toBeLessThan(seen.size + 2 * kills * batch);
}, 120_000);

/** By SQL, because a hundred thousand transactions would take longer than the test; lanes as the store chooses them. */
async function enqueueMany(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(
      `INSERT INTO latchkey_outbox (
         lane, topic, partition_key, payload, message_key, correlation_id, due_at, created_at)
       SELECT get_byte(sha256(partition::bytea), 3) % 64, 'receipt.send', partition, place::text,
         'lk_' || partition || '_' || place, 'request-1', now(), now()
       FROM generate_series(0, $2::int - 1) AS places (place),
         (SELECT 'p' || n AS partition FROM generate_series(1, $1::int) AS n) AS partitions
       ORDER BY places.place`,
      [partitions, messagesPerPartition],
    );
    await client.query("ANALYZE latchkey_outbox");
  } finally {
    await client.end();
  }
}

/** One more message for each partition, through the store's own transaction. */
async function enqueueLater(latchkey: Parameters<typeof enqueue>[0], place: number): Promise<void> {
  const names = Array.from({ length: partitions }, (_, n) => `p${n + 1}`);
  await enqueue(
    latchkey,
    ...names.map((partition) => ({ partition, payload: place, key: `lk_${partition}_${place}` })),
  );
}

async function startRelay(options: RelayProcessOptions): Promise<ChildProcess> {
  const child = fork(
    fileURLToPath(new URL("./fixtures/relay-process.ts", import.meta.url)),
    [JSON.stringify(options)],
    { execArgv: ["--import", "tsx"], stdio: ["ignore", "inherit", "inherit", "ipc"] },
  );
  await once(child, "message");
  return child;
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill("SIGKILL");
  await exited(child);
}

/** A relay that has nothing to deliver would not die of it, so it is not waited for longer than for its turn. */
async function killAfterDelivery(child: ChildProcess): Promise<void> {
  child.send("die");
  await Promise.race([exited(child), new Promise((resolve) => setTimeout(resolve, leaseMs))]);
  await kill(child);
}

async function exited(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
}

function readDeliveries(ledger: string) {
  const lines = readFileSync(ledger, "utf8").split("\n").slice(0, -1);
  return lines.map((line) => {
    const [partition = "", place = "", key = ""] = line.split(" ");
    return { partition, place, key };
  });
}
