// Rocket Rides: a ride service and its payment provider, each in a process of its own. DATABASE_URL puts the books into
// Postgres, DEDUPLICATES=no takes a provider that charges twice when it is asked twice, PORT is where the service listens.
import { fork } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import type { LatchkeyEvent } from "latchkey";
import type { Books } from "./books/books.ts";
import { postgresBooks, preparePostgres } from "./books/postgres.ts";
import { sqliteBooks } from "./books/sqlite.ts";
import { httpProvider } from "./provider/client.ts";
import type { Behaviour, ProviderListening } from "./provider/server.ts";
import { rideService } from "./service.ts";
import { startRideWorkers } from "./workers.ts";

const folder = ".latchkey";
const port = portFrom(process.env.PORT);
const providerDeduplicates = process.env.DEDUPLICATES !== "no";
const databaseUrl = process.env.DATABASE_URL;

const providerUrl = await startProvider();
if (databaseUrl === undefined) await serve(sqliteBooks(`${folder}/rides.db`));
else {
  await preparePostgres(databaseUrl);
  await serve(postgresBooks(databaseUrl));
}

async function serve<Tx>(books: Books<Tx>): Promise<void> {
  const { app, latchkey } = rideService({
    books,
    provider: httpProvider(providerUrl, { timeoutMs: 3_000 }),
    providerDeduplicates,
    settings: { reconcileAfterMs: 1_000 }, // Whoever tries this out does not want to wait for half a minute.
  });
  latchkey.subscribe((event) => {
    const line = told(event);
    if (line !== undefined) console.log(`  ${line}`);
  });
  const server = app.listen(port, "127.0.0.1");
  server.once("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EADDRINUSE") throw error;
    console.error(`Port ${port} is taken. Choose another one: PORT=8788 npm start -w examples/rocket-rides`);
    process.exit(1);
  });
  await once(server, "listening");
  const serviceUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const workers = startRideWorkers({
    latchkey,
    books,
    serviceUrl,
    pace: { intervalMs: 1_000, backoff: { baseMs: 2_000, capMs: 60_000 } },
  });
  greet(serviceUrl);

  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, async () => {
      server.close();
      server.closeIdleConnections();
      await workers.stop();
      await latchkey.close();
      await books.close();
      process.exit(0);
    });
  }
}

async function startProvider(): Promise<string> {
  const behaviour: Partial<Behaviour> = { deduplicates: providerDeduplicates };
  const child = fork(fileURLToPath(new URL("./provider/server.ts", import.meta.url)), {
    env: {
      ...process.env,
      PORT: "0",
      LEDGER: `${folder}/provider.jsonl`,
      BEHAVIOUR: JSON.stringify(behaviour),
    },
  });
  const [listening] = (await once(child, "message")) as [ProviderListening];
  return `http://127.0.0.1:${listening.port}`;
}

/** The steps as they happen, so that a retry can be seen to skip what is done. */
function told(event: LatchkeyEvent): string | undefined {
  switch (event.type) {
    case "phase":
      return `${event.key} attempt ${event.attempt}: ${event.name} ${event.outcome}`;
    case "settled":
      return `${event.key} attempt ${event.attempt}: ${event.as} ${event.reason ?? ""}`;
    case "reconciled":
      return `${event.key} was asked about: ${event.outcome}`;
    case "worker_error":
      return `the ${event.worker} failed, and tries again: ${event.error}`;
    default:
      return undefined;
  }
}

function greet(serviceUrl: string): void {
  // New keys for every start, so that the first command is always a first run.
  const ride = (key: string) =>
    `curl -i ${serviceUrl}/rides -H 'Idempotency-Key: ${key}' -H 'Content-Type: application/json' -d '{"from":"Baikonur","to":"the Moon"}'`;
  const [smooth, rough] = [randomUUID(), randomUUID()];
  console.log(
    [
      `Rocket Rides is listening on ${serviceUrl} (books in ${databaseUrl === undefined ? `${folder}/rides.db` : "Postgres"}),`,
      `its payment provider on ${providerUrl} (${providerDeduplicates ? "deduplicates" : "does not deduplicate"}, ledger in ${folder}/provider.jsonl).`,
      "",
      "1. Book a ride. It is created, charged and finished:",
      ride(smooth),
      "",
      "2. The answer got lost? Send it again. Nothing is executed, the same answer comes back (Idempotency-Replayed: true):",
      ride(smooth),
      "",
      "3. Now the provider loses its next answer: the card is charged, and the service never hears of it:",
      `curl -i ${providerUrl}/behaviour -d '{"next":["lose-response"]}'`,
      "",
      "4. Book another ride. It cannot be finished (502):",
      ride(rough),
      "",
      providerDeduplicates
        ? "5. Send it again. It is finished, and its card is charged once:"
        : "5. Send it again. It is 409 until the reconciler has found the charge; then it is finished, and charged once:",
      ride(rough),
      "",
      `Two rides, two charges: curl ${providerUrl}/charges`,
    ].join("\n"),
  );
}

function portFrom(text: string | undefined): number {
  const number = Number(text ?? 8787);
  if (Number.isInteger(number) && number >= 0 && number <= 65_535) return number;
  console.error(`PORT is "${text}" and must be a number from 0 to 65535.`);
  process.exit(1);
}
