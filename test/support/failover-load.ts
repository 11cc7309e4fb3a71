import { randomInt, randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import postgres from "postgres";
import { idempotent } from "../../src/adapters/fetch.ts";
import { createLatchkey, currentOperation } from "../../src/index.ts";
import {
  type PostgresClient,
  type PostgresStoreOptions,
  postgresStore,
} from "../../src/stores/postgres/store.ts";
import { send } from "../stores/postgres-support.ts";

/** What a client may ask for. A charge is an effect that nobody can take back; a ride is a row of the database. */
const kinds = {
  charge: { onCrash: "reconcile", reconcileAfterMs: 600_000 },
  ride: { onCrash: "retry" },
  tour: { onCrash: "resume" },
} as const;

export type Kind = keyof typeof kinds;

/** Everything that was done and said, for the reckoning in the end. */
export interface Books {
  /** Every key that was ever sent. */
  readonly sent: Map<string, Kind>;
  /** What clients were told, byte for byte. */
  readonly acknowledged: Map<string, string>;
  /** How often each handler of a charge ran. */
  readonly charges: Map<string, number>;
  /** Keys whose outcome is not known. */
  readonly unknown: Set<string>;
  /** What must not happen: two answers for one key, or an answer that is none of those foreseen. */
  readonly complaints: string[];
  /** How many answers were the first for their key. */
  executed: number;
  /** How often a client was told to come again because the store was down. */
  refused: number;
}

export const leaseMs = 1_000;

/** Each of the four applications has five connections. */
const reckoners = 40;

/** One application: a way in, and a pool of its own. */
interface App {
  request(kind: Kind, key: string): Promise<Response>;
  close(): Promise<unknown>;
}

/** Applications on one database, and clients that send new keys, duplicates and retries until they are stopped. */
export function startLoad(url: string, { clients }: { clients: number }) {
  const books: Books = {
    sent: new Map(),
    acknowledged: new Map(),
    charges: new Map(),
    unknown: new Set(),
    complaints: [],
    executed: 0,
    refused: 0,
  };
  const apps = [
    startApp(pgPool(url), books),
    startApp(pgPool(url), books, { listen: true }),
    startApp(pgPool(url), books, { lock: "advisory" }),
    startApp(postgresSql(url), books, { listen: true }),
  ];
  let isStopping = false;

  async function client(): Promise<void> {
    while (!isStopping) {
      await ask(nextKey(), () => isStopping);
      await sleep(randomInt(10));
    }
  }

  /** Mostly a new one, else one that was sent before, whatever became of it. */
  function nextKey(): string {
    const known = [...books.sent.keys()];
    if (known.length > 0 && randomInt(10) < 3) return known[randomInt(known.length)] as string;
    const key = randomUUID();
    books.sent.set(key, (Object.keys(kinds) as Kind[])[randomInt(3)] as Kind);
    return key;
  }

  /** Comes again, each time to another application, until there is an answer. */
  async function ask(key: string, isEnough: () => boolean): Promise<boolean> {
    const kind = books.sent.get(key) as Kind;
    do {
      const app = apps[randomInt(apps.length)] as App;
      // A handler that throws is a server error, and what it could not do is tried again.
      const response = await app.request(kind, key).catch(() => undefined);
      if (response !== undefined && (await hear(key, response, books))) return true;
      await sleep(20 + randomInt(30));
    } while (!isEnough());
    return false;
  }

  const running = Array.from({ length: clients }, client);
  return {
    books,
    async stop() {
      isStopping = true;
      await Promise.all(running);
    },
    /** Sends every key once more, and answers with those that had no end in time. */
    async reckon(withinMs: number): Promise<string[]> {
      const deadline = performance.now() + withinMs;
      const left = [...books.sent.keys()];
      const endless: string[] = [];
      // Not all at once: on a busy machine the last of thousands would not be answered within the store's time.
      await Promise.all(
        Array.from({ length: reckoners }, async () => {
          for (let key = left.pop(); key !== undefined; key = left.pop()) {
            if (!(await ask(key, () => performance.now() > deadline))) endless.push(key);
          }
        }),
      );
      return endless;
    },
    close: () => Promise.all(apps.map((app) => app.close())),
  };
}

/** Whether this was the end of it. */
async function hear(key: string, response: Response, books: Books): Promise<boolean> {
  const body = await response.text();
  if (response.status === 201) {
    const before = books.acknowledged.get(key);
    if (before !== undefined && before !== body) books.complaints.push(`${key}: ${before}, then ${body}`);
    if (books.unknown.has(key)) books.complaints.push(`${key}: unknown, then ${body}`);
    if (response.headers.get("idempotency-replayed") === null) books.executed += 1;
    books.acknowledged.set(key, body);
    return true;
  }
  const { code } = JSON.parse(body) as { code: string };
  if (code === "outcome-unknown") {
    if (books.acknowledged.has(key)) books.complaints.push(`${key}: acknowledged, then unknown`);
    books.unknown.add(key);
    return true;
  }
  if (code === "store-unavailable") books.refused += 1;
  else if (!comeAgain.has(code)) books.complaints.push(`${key}: ${response.status} ${body}`);
  return false;
}

const comeAgain: ReadonlySet<string> = new Set(["in-flight", "lease-lost"]);

function startApp(
  { client, end }: { client: PostgresClient; end(): Promise<unknown> },
  books: Books,
  options: PostgresStoreOptions = {},
): App {
  const store = postgresStore(client, options);
  const latchkey = createLatchkey({ store, tenant: "single", leaseMs, storeTimeoutMs: 500 });
  const booked = async () => {
    const { key } = currentOperation();
    const ride = await currentOperation().atomic("booked", async (tx) => {
      const id = randomUUID();
      await send(tx as Parameters<typeof send>[0], "INSERT INTO rides (key, id) VALUES ($1, $2)", [key, id]);
      await sleep(randomInt(10));
      return id;
    });
    return Response.json({ ride }, { status: 201 });
  };
  const handlers: Record<Kind, (request: Request) => Promise<Response>> = {
    charge: idempotent(latchkey, { name: "charge", ...kinds.charge })(async () => {
      const { key } = currentOperation();
      books.charges.set(key, (books.charges.get(key) ?? 0) + 1);
      await sleep(randomInt(20));
      return Response.json({ charge: randomUUID() }, { status: 201 });
    }),
    ride: idempotent(latchkey, { name: "ride", ...kinds.ride })(booked),
    tour: idempotent(latchkey, { name: "tour", ...kinds.tour })(booked),
  };
  return {
    request: (kind, key) =>
      handlers[kind](
        new Request(`http://localhost/${kind}`, {
          method: "POST",
          headers: { "idempotency-key": key },
          body: "{}",
        }),
      ),
    async close() {
      await latchkey.close();
      await end();
    },
  };
}

function pgPool(connectionString: string) {
  const client = new pg.Pool({ connectionString, max: 5, connectionTimeoutMillis: 2_000 });
  return { client, end: () => client.end() };
}

function postgresSql(url: string) {
  // As docs/stores.md advises: nobody catches the error of the question for types, if that is when the connection is lost.
  const client = postgres(url, { max: 5, backoff: () => 0.05, fetch_types: false });
  // Without a limit this driver (3.4.9) waits for ever for a connection that was lost in the middle of a statement.
  return { client, end: () => client.end({ timeout: 1 }) };
}
