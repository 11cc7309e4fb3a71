import { fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { idempotent } from "../../src/adapters/express.ts";
import { createLatchkey, type Latchkey } from "../../src/index.ts";
import { migrate, postgresStore } from "../../src/stores/postgres/store.ts";
import { startWorkers } from "../../src/workers/workers.ts";
import { freshDatabase } from "../support/database.ts";
import { codeOf, type Node, startNode } from "./support.ts";

/** What has to hold before an implementation ships, gate by gate, on Postgres. */
describe("the quality gates", () => {
  let database: Awaited<ReturnType<typeof freshDatabase>>;
  let pool: pg.Pool;
  let latchkey: Latchkey;
  let node: Node;
  let executions = 0;
  let gate: () => Promise<unknown>;
  const gateNumber = 4711;

  beforeAll(async () => {
    database = await freshDatabase();
    pool = new pg.Pool({ connectionString: database.url });
    await migrate(pool);
    latchkey = createLatchkey({ store: postgresStore(pool), tenant: "single", leaseMs: 500 });
    node = await startNode(latchkey, (app) => {
      const handler = async (_req: unknown, res: { status(code: number): { json(body: unknown): void } }) => {
        executions += 1;
        await gate();
        res.status(201).json({ execution: executions });
      };
      app.use(idempotent(latchkey));
      app.post("/rides", handler);
      app.post("/stripe", idempotent(latchkey, { profile: "stripe" }), handler);
      app.get("/rides", handler);
      app.put("/rides", handler);
      app.delete("/rides", handler);
    });
  });
  afterAll(async () => {
    await node.close();
    await latchkey.close();
    await pool.end();
    await database.drop();
  });
  beforeEach(() => {
    executions = 0;
    gate = async () => {};
  });

  it("the same key and body twice: identical responses, the second one stored", async () => {
    const first = await node.post("/rides", { key: "twice" });
    const second = await node.post("/rides", { key: "twice" });
    expect(second.status).toBe(first.status);
    expect(await second.text()).toBe(await first.text());
    expect(second.headers.get("idempotency-replayed")).toBe("true");
    expect(executions).toBe(1);
  });

  it("the same key with another body: 422, or 400 in the other flavour", async () => {
    await node.post("/rides", { key: "other" });
    const wrong = await node.post("/rides", { key: "other", body: { amount: 11 } });
    expect(wrong.status).toBe(422);
    expect(await codeOf(wrong)).toBe("key-reused");
    const stripe = createLatchkey({ store: postgresStore(pool), tenant: "single", profile: "stripe" });
    const flavoured = await startNode(stripe, (app) =>
      app.post("/rides", idempotent(stripe), (_req, res) => void res.json({})),
    );
    await flavoured.post("/rides", { key: "flavour" });
    expect((await flavoured.post("/rides", { key: "flavour", body: { amount: 11 } })).status).toBe(400);
    await flavoured.close();
    await stripe.close();
  });

  it("two at once, the first held by an advisory lock: one succeeds, the other is 409", async () => {
    const holder = await pool.connect();
    await holder.query("SELECT pg_advisory_lock($1)", [gateNumber]);
    gate = () => pool.query("SELECT pg_advisory_xact_lock($1)", [gateNumber]);
    const first = node.post("/rides", { key: "race" });
    while (executions === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    const second = await node.post("/rides", { key: "race" });
    expect(second.status).toBe(409);
    expect(await codeOf(second)).toBe("in-flight");
    await holder.query("SELECT pg_advisory_unlock($1)", [gateNumber]);
    holder.release();
    expect((await first).status).toBe(201);
    expect(executions).toBe(1);
  });

  it("a worker killed in mid-phase: the retry resumes there, and repeats no earlier phase", async () => {
    await pool.query(
      "CREATE TABLE effects (n serial PRIMARY KEY, phase text NOT NULL, attempt int NOT NULL)",
    );
    const run = async (killIn: string | undefined) => {
      const child = fork(
        fileURLToPath(new URL("../fixtures/phases-worker.ts", import.meta.url)),
        [database.url, ...(killIn === undefined ? [] : [killIn])],
        { execArgv: ["--import", "tsx"] },
      );
      const messages: unknown[] = [];
      child.on("message", (message) => messages.push(message));
      const [code, signal] = (await once(child, "exit")) as [number | null, string | null];
      return { code, signal, messages };
    };
    expect(await run("charge")).toEqual({ code: null, signal: "SIGKILL", messages: [] });
    expect(await run("receipt")).toEqual({ code: null, signal: "SIGKILL", messages: [] });
    expect(await run(undefined)).toEqual({
      code: 0,
      signal: null,
      messages: [{ recoveryPoint: "charge", attempt: 3, result: "finished" }],
    });
    const { rows } = await pool.query("SELECT phase, attempt FROM effects ORDER BY n");
    expect(rows).toEqual([
      { phase: "ride", attempt: 1 },
      { phase: "charge", attempt: 2 },
      { phase: "receipt", attempt: 3 },
    ]);
  });

  it("the unique index on tenant and key exists, and reserving uses it", async () => {
    const { rows: indexes } = await pool.query<{ def: string }>(
      "SELECT indexdef AS def FROM pg_indexes WHERE indexname = 'latchkey_records_pkey'",
    );
    expect(indexes[0]?.def).toMatch(/UNIQUE INDEX .* \(scope, key\)/);
    const { rows } = await pool.query<{ "QUERY PLAN": string }>(
      `EXPLAIN INSERT INTO latchkey_records (scope, key, state, fingerprint, fence, on_crash, owner, lease_until, created_at, expires_at)
       VALUES ('a', 'b', 'in_progress', 'f', 1, 'retry', 'o', now(), now(), now())
       ON CONFLICT (scope, key) DO NOTHING`,
    );
    const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
    expect(plan).toContain("Conflict Arbiter Indexes: latchkey_records_pkey");
  });

  it("the reaper runs by itself, and respects the retention", async () => {
    const brief = createLatchkey({ store: postgresStore(pool), tenant: "single", retentionMs: 1 });
    await brief.run({ tenant: "acme", key: "brief" }, () => 1);
    await latchkey.run({ tenant: "acme", key: "kept" }, () => 1);
    const workers = startWorkers(latchkey, { reaper: { intervalMs: 10 } });
    const stateOf = async (key: string) => (await latchkey.store.read({ scope: "acme", key })).record?.state;
    while ((await stateOf("brief")) !== undefined) await new Promise((resolve) => setTimeout(resolve, 10));
    await workers.stop();
    expect(await stateOf("kept")).toBe("completed");
    await brief.close();
  });

  it.each(["GET", "PUT", "DELETE"])("%s is idempotent by definition, and needs no key", async (method) => {
    const answer = await fetch(`${node.url}/rides`, { method });
    expect(answer.status).toBe(201);
    expect(executions).toBe(1);
  });

  it("the documentation names the status codes and the retention", () => {
    const page = readFileSync(new URL("../../docs/policies.md", import.meta.url), "utf8");
    expect(page).toMatch(/`mismatchStatus` \| `422` · `400`/);
    expect(page).toMatch(/`retentionMs` \| 24 h/);
  });
});
