import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { idempotent } from "../../src/adapters/node.ts";
import { createLatchkey } from "../../src/index.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { type PostgresServer, startPostgres } from "../support/postgres-server.ts";

describe("a Postgres that goes away and comes back", () => {
  let postgres: PostgresServer;
  let pool: pg.Pool;
  let server: Server;
  let url: string;
  let executions = 0;
  let hold: Promise<void> | undefined;

  beforeAll(async () => {
    postgres = await startPostgres();
    pool = new pg.Pool({ connectionString: postgres.url });
    await migrate(pool);
    const latchkey = createLatchkey({
      store: postgresStore(pool),
      tenant: "single",
      leaseMs: 600,
      storeTimeoutMs: 500,
    });
    server = createServer(
      idempotent(latchkey)(async (_req, res) => {
        executions += 1;
        await hold;
        res.writeHead(201).end(`execution ${executions}`);
      }),
    );
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  });
  afterAll(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await pool.end();
    await postgres.remove();
  });

  const charge = (key: string) => fetch(url, { method: "POST", headers: { "idempotency-key": key } });

  async function untilStatus(status: number, ask: () => Promise<Response>): Promise<Response> {
    for (;;) {
      const response = await ask();
      if (response.status === status) return response;
      await response.body?.cancel();
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  it.each([
    ["stopped", () => postgres.stop(), () => postgres.start()],
    ["killed", () => postgres.kill(), () => postgres.start()],
    ["frozen", () => postgres.pause(), () => postgres.resume()],
  ] as const)(
    "%s: nothing runs and the answer is 503; back again, requests work",
    async (how, away, back) => {
      const before = await charge(`${how}-before`);
      expect(before.status).toBe(201);
      const stored = await before.text();
      const ran = executions;
      await away();
      try {
        const refused = await charge(`${how}-during`);
        expect(refused.status).toBe(503);
        expect(refused.headers.get("retry-after")).toBe("5");
        expect(await refused.json()).toMatchObject({ code: "store-unavailable", retry: "same-key" });
        expect((await charge(`${how}-before`)).status).toBe(503);
        expect(executions).toBe(ran);
      } finally {
        await back();
      }
      const replay = await untilStatus(201, () => charge(`${how}-before`));
      expect(await replay.text()).toBe(stored);
      expect(executions).toBe(ran);
      expect((await untilStatus(201, () => charge(`${how}-after`))).status).toBe(201);
      expect(executions).toBe(ran + 1);
    },
  );

  it("gone while a handler runs: its client gets 503, and the retry gets the answer that was made", async () => {
    let go = () => {};
    hold = new Promise((resolve) => {
      go = resolve;
    });
    const ran = executions;
    const first = charge("gone-meanwhile");
    while (executions === ran) await new Promise((resolve) => setTimeout(resolve, 5));
    await postgres.stop();
    go();
    hold = undefined;
    try {
      expect((await first).status).toBe(503);
    } finally {
      await postgres.start();
    }
    const replay = await untilStatus(201, () => charge("gone-meanwhile"));
    expect(replay.headers.get("idempotency-replayed")).toBe("true");
    expect(await replay.text()).toBe(`execution ${ran + 1}`);
    expect(executions).toBe(ran + 1);
  });
});
