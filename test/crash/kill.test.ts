import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { migrate } from "../../src/stores/postgres/store.ts";
import { type App, type AppOptions, startApp, untilNotInFlight, workspace } from "../support/app.ts";
import { freshDatabase } from "../support/database.ts";
import { type SharedStore, sharedStores } from "../support/shared-stores.ts";

const leaseMs = 1_000;
let database: Awaited<ReturnType<typeof freshDatabase>>;
const files = workspace();
const apps: App[] = [];

beforeAll(async () => {
  database = await freshDatabase();
  const pool = new pg.Pool({ connectionString: database.url });
  await migrate(pool);
  await pool.end();
});
afterEach(async () => {
  await Promise.all(apps.splice(0).map((app) => app.stop()));
});
afterAll(async () => {
  files.remove();
  await database.drop();
});

async function start(store: AppOptions["store"], latchkey: AppOptions["latchkey"]): Promise<App> {
  const app = await startApp({ store, ledger: files.ledger, latchkey });
  apps.push(app);
  return app;
}

/** There is nothing to resume from where no phase can commit: such a store refuses it when it is constructed. */
const withoutTransactions = new Set(["Redis", "Redis Cluster"]);

const { "Postgres with advisory locks": _below, ...leaseStores } = sharedStores;

/** A key in a header is a token. */
const dashed = (name: string) => name.replaceAll(" ", "-");

describe.each(Object.entries(leaseStores))("kill -9 and SIGSTOP in mid-handler on %s", (name, startStore) => {
  let shared: SharedStore;
  const storeOf = () => shared.store;
  beforeAll(async () => {
    shared = await startStore();
  }, 60_000);
  afterAll(() => shared?.stop());

  it.each([
    ["reconcile", { status: 409, code: "outcome-unknown", executions: [1] }],
    ["resume", { status: 201, code: undefined, executions: [1, 2] }],
    ["retry", { status: 201, code: undefined, executions: [1, 2] }],
  ] as const)("under onCrash %s the key is never wedged", async (onCrash, expected) => {
    if (onCrash === "resume" && withoutTransactions.has(name)) {
      await expect(start(storeOf(), { onCrash })).rejects.toThrow("the app exited");
      return;
    }
    const key = `kill-${dashed(name)}-${onCrash}`;
    const victim = await start(storeOf(), { leaseMs, onCrash });
    const lost = victim.charge(key, { hold: true }).catch(() => "connection lost");
    await victim.said("holding", key);
    await victim.signal("SIGKILL");
    expect(await lost).toBe("connection lost");

    const restarted = await start(storeOf(), { leaseMs, onCrash });
    const answer = await untilNotInFlight(() => restarted.charge(key));
    expect(answer.status).toBe(expected.status);
    expect(((await answer.json()) as { code?: string }).code).toBe(expected.code);
    expect(files.executions(key)).toEqual(expected.executions);

    // What was decided stays so: an unknown outcome is not executed, and an answer is replayed.
    const again = await restarted.charge(key);
    expect(again.status).toBe(expected.status);
    expect(again.headers.get("idempotency-replayed")).toBe(expected.status === 201 ? "true" : null);
    expect(files.executions(key)).toEqual(expected.executions);
  });

  it("a process that is stopped and continued cannot complete what another one took over", async () => {
    const key = `paused-${dashed(name)}`;
    const policy = { leaseMs, onCrash: "retry" } as const;
    const paused = await start(storeOf(), policy);
    const other = await start(storeOf(), policy);
    const stale = paused.charge(key, { hold: true });
    await paused.said("holding", key);
    await paused.signal("SIGSTOP");
    const answer = await untilNotInFlight(() => other.charge(key));
    expect(answer.status).toBe(201);
    const winner = (await answer.json()) as { by: number };
    expect(winner.by).toBe(other.pid);
    paused.release(key);
    await paused.signal("SIGCONT");
    const refused = await stale;
    expect(refused.status).toBe(409);
    expect(((await refused.json()) as { code: string }).code).toBe("lease-lost");
    expect(await (await paused.charge(key)).json()).toEqual(winner);
  });
});

describe("kill -9 in mid-handler on postgres with advisory locks", () => {
  const store = () => ({ kind: "postgres", url: database.url, lock: "advisory" }) as const;

  it("the key is free within a second, however long the lease is", async () => {
    const key = "kill-advisory";
    const policy = { leaseMs: 60_000, onCrash: "retry" } as const;
    const victim = await start(store(), policy);
    const survivor = await start(store(), policy);
    victim.charge(key, { hold: true }).catch(() => {});
    await victim.said("holding", key);
    expect((await survivor.charge(key)).status).toBe(409);
    const killedAt = performance.now();
    await victim.signal("SIGKILL");
    const answer = await untilNotInFlight(() => survivor.charge(key));
    expect(performance.now() - killedAt).toBeLessThan(1_000);
    expect(answer.status).toBe(201);
    expect(files.executions(key)).toEqual([1, 2]);
  });

  it("a process that loses its session while it lives stops, and is fenced", async () => {
    const key = "session-lost";
    const policy = { leaseMs: 60_000, onCrash: "retry" } as const;
    const victim = await start(store(), policy);
    const survivor = await start(store(), policy);
    const stale = victim.charge(key, { hold: true });
    await victim.said("holding", key);
    await terminateSessionOf(key);
    await victim.said("aborted", key);
    const answer = await untilNotInFlight(() => survivor.charge(key));
    expect(answer.status).toBe(201);
    victim.release(key);
    const refused = await stale;
    expect(refused.status).toBe(409);
    expect(((await refused.json()) as { code: string }).code).toBe("lease-lost");
    const replay = await victim.charge(key);
    expect(await replay.json()).toEqual(await answer.json());
    expect(files.executions(key)).toEqual([1, 2]);
  });

  /** Ends the session that owns the key's lease, as a failover or an administrator would. */
  async function terminateSessionOf(key: string): Promise<void> {
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    try {
      const { rowCount } = await client.query(
        `SELECT pg_terminate_backend(l.pid)
           FROM pg_locks l JOIN latchkey_records r ON r.owner_session::bigint = l.objid::bigint
          WHERE l.locktype = 'advisory' AND l.granted AND r.key = $1`,
        [key],
      );
      expect(rowCount).toBe(1);
    } finally {
      await client.end();
    }
  }
});
