import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import { afterEach, expect, it } from "vitest";
import { idempotent } from "../../src/adapters/fetch.ts";
import { createLatchkey, currentOperation } from "../../src/index.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { eventually } from "../stores/postgres-support.ts";
import { leaseMs, startLoad } from "../support/failover-load.ts";
import { type PostgresPair, startPostgresPair } from "../support/postgres-standby.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";

const kills = 10;
const patienceMs = 20_000; // A machine may have more to do than this test.
let pair: PostgresPair | undefined;
let proxy: TcpProxy | undefined;

afterEach(async () => {
  await proxy?.close();
  await pair?.remove();
});

async function start({ synchronous }: { synchronous: boolean }) {
  const servers = await startPostgresPair({ synchronous });
  pair = servers;
  const way = await startTcpProxy({ host: "127.0.0.1", port: servers.primary.port });
  proxy = way;
  const pool = new pg.Pool({ connectionString: servers.primary.url, max: 1 });
  await migrate(pool);
  // Nothing but Latchkey keeps a ride from being booked twice.
  await pool.query("CREATE TABLE rides (key text NOT NULL, id text NOT NULL)");
  await pool.end();
  return { servers, way, url: `postgres://postgres@127.0.0.1:${way.port}/postgres` };
}

it(`the primary is killed ${kills} times under load, and lost in other ways, and its synchronous standby takes over: nothing that was acknowledged is lost, nothing runs twice`, async ({
  annotate,
}) => {
  const { servers, way, url } = await start({ synchronous: true });
  const load = startLoad(url, { clients: 12 });
  const { books } = load;
  const pointTo = ({ port }: { port: number }) => way.pointTo({ host: "127.0.0.1", port });
  const executed = async (more: number) => {
    const goal = books.executed + more;
    await eventually(() => books.executed >= goal, patienceMs);
  };

  async function killed() {
    const before = books.refused;
    await servers.primary.kill();
    await servers.promote();
    // Those whose connections have died with it come again, in vain until they are led to the new primary.
    await eventually(() => books.refused > before, patienceMs);
    // Without a standby of its own that one confirms nothing.
    const confirmed = books.executed;
    pointTo(servers.primary);
    await sleep(300);
    expect(books.executed).toBe(confirmed);
    await servers.reseed();
  }
  async function foundOnlyToRead() {
    const before = books.refused;
    pointTo(servers.standby);
    way.cut();
    await eventually(() => books.refused > before + 10, patienceMs);
    await servers.primary.kill();
    await servers.promote();
    await servers.reseed();
  }
  async function shutDown() {
    await servers.primary.stop();
    await servers.promote();
    pointTo(servers.primary);
    await servers.reseed();
  }
  async function leftBehind() {
    // It lives on, with connections to it, and does not know that it is not the primary any more.
    const before = books.refused;
    await servers.promote();
    await servers.reseed({ keepFormer: true });
    pointTo(servers.primary);
    await eventually(() => books.refused > before + 10, patienceMs);
    way.cut();
  }
  // The other losses are between kills, so that a kill comes after each of them as well.
  const others = [foundOnlyToRead, shutDown, leftBehind];
  const losses = Array.from({ length: kills }, (_, nth) => [killed, ...others.slice(nth, nth + 1)]).flat();
  for (const lost of losses) {
    await executed(40);
    await lost();
  }
  await executed(40);
  await load.stop();

  const endless = await load.reckon(leaseMs + patienceMs);
  await load.close();
  expect(books.complaints).toEqual([]);
  expect(endless).toEqual([]);
  for (const [key, times] of books.charges) expect(times, `charge ${key}`).toBe(1);
  const rides = await ridesByKey(servers);
  for (const [key, times] of rides) expect(times, `ride ${key}`).toBe(1);
  for (const [key, kind] of books.sent) {
    if (kind !== "charge") expect(rides.get(key), `${kind} ${key}`).toBe(1);
    else if (books.acknowledged.has(key)) expect(books.charges.get(key), `${kind} ${key}`).toBe(1);
  }
  expect(books.executed).toBeGreaterThan(losses.length * 40);
  await annotate(
    `${books.sent.size} keys, ${books.acknowledged.size} acknowledged, ${books.unknown.size} unknown, ` +
      `${books.refused} times told to come again`,
  );
}, 240_000);

async function ridesByKey(servers: PostgresPair): Promise<Map<string, number>> {
  const pool = new pg.Pool({ connectionString: servers.primary.url, max: 1 });
  const { rows } = await pool.query<{ key: string; times: number }>(
    "SELECT key, count(*)::int AS times FROM rides GROUP BY key",
  );
  await pool.end();
  return new Map(rows.map(({ key, times }) => [key, times]));
}

/** What becomes of a request that comes while the standby hears nothing, when the standby then takes over. */
async function chargeWhileDisconnected({ synchronous }: { synchronous: boolean }) {
  const { servers, way, url } = await start({ synchronous });
  const pool = new pg.Pool({ connectionString: url });
  const latchkey = createLatchkey({
    store: postgresStore(pool),
    tenant: "single",
    leaseMs: 60_000,
    storeTimeoutMs: 1_000,
  });
  const executions: string[] = [];
  const handle = idempotent(latchkey)(async () => {
    const { key } = currentOperation();
    executions.push(key);
    return Response.json({ execution: executions.length }, { status: 201 });
  });
  const charge = async (key: string) => {
    const headers = { "idempotency-key": key };
    const response = await handle(new Request("http://localhost/", { method: "POST", headers }));
    return `${response.status} ${await response.text()}`;
  };
  try {
    const before = await charge("before");
    await servers.disconnect();
    const meanwhile = await charge("meanwhile");
    const executedMeanwhile = executions.length;
    await servers.primary.kill();
    await servers.promote();
    await servers.reseed();
    way.pointTo({ host: "127.0.0.1", port: servers.primary.port });
    let again = "";
    await eventually(async () => {
      again = await charge("meanwhile");
      return again.startsWith("201");
    });
    expect(await charge("before")).toBe(before);
    return { meanwhile, executedMeanwhile, again, executions };
  } finally {
    await latchkey.close();
    await pool.end();
  }
}

it("with synchronous replication nothing is executed while the standby cannot hear of it", async () => {
  const { meanwhile, executedMeanwhile, again, executions } = await chargeWhileDisconnected({
    synchronous: true,
  });
  expect(meanwhile).toMatch(/^503 /);
  expect(executedMeanwhile).toBe(1);
  expect(again).toBe('201 {"execution":2}');
  expect(executions).toEqual(["before", "meanwhile"]);
}, 60_000);

it("asynchronous replication may lose the last commits: a lost record means that the retry executes again", async () => {
  const { meanwhile, again, executions } = await chargeWhileDisconnected({ synchronous: false });
  expect(meanwhile).toBe('201 {"execution":2}');
  expect(again).toBe('201 {"execution":3}');
  expect(executions).toEqual(["before", "meanwhile", "meanwhile"]);
}, 60_000);
