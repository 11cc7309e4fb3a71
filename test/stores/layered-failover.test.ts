import pg from "pg";
import { expect, it } from "vitest";
import type { Reservation, ReserveRequest } from "../../src/core/store.ts";
import { migrate } from "../../src/stores/postgres/store.ts";
import { startPostgresPair } from "../support/postgres-standby.ts";
import { startRedis } from "../support/redis-server.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { inUse, ioredis, layeredOver } from "./layered-support.ts";
import { again, complete, eventually, leaseOf, request } from "./postgres-support.ts";

it("what the truth has lost in a failover is not replayed by a front that has not", async () => {
  const [servers, redis] = await Promise.all([startPostgresPair({ synchronous: false }), startRedis()]);
  const primary = () => ({ host: "127.0.0.1", port: servers.primary.port });
  const proxy = await startTcpProxy(primary());
  const url = new URL(servers.primary.url);
  url.port = String(proxy.port);
  const pool = new pg.Pool({ connectionString: url.href });
  pool.on("error", () => {});
  await migrate(pool);
  const layered = layeredOver(pool, ioredis(redis.url));
  const { store, truth } = layered;
  const completed = async (): Promise<ReserveRequest> => {
    const first = request();
    await store.settle(await leaseOf(store, first), complete);
    return first;
  };
  try {
    await inUse(layered);
    const kept = await completed();
    await eventually(() => isOn(servers.standby.url, kept));
    await servers.disconnect();
    const lost = await completed();
    await eventually(async () => {
      const asked = truth.calls.reserve;
      expect(await store.reserve(again(lost))).toMatchObject({ kind: "replay" });
      return truth.calls.reserve === asked;
    });

    await servers.primary.kill();
    await servers.promote();
    proxy.pointTo(primary());
    await eventually(
      () =>
        inUse(layered)
          .then(() => true)
          .catch(() => false),
      20_000,
    );
    const answers: Reservation[] = [await store.reserve(again(kept)), await store.reserve(again(lost))];
    expect(answers.map(({ kind }) => kind)).toEqual(["replay", "execute"]);
  } finally {
    await layered.close();
    await pool.end();
    await Promise.all([proxy.close(), servers.remove(), redis.stop()]);
  }
}, 60_000);

/** Whether a standby shows the answer to a request. */
async function isOn(connectionString: string, { scope, key }: ReserveRequest): Promise<boolean> {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    const text = "SELECT 1 FROM latchkey_records WHERE scope = $1 AND key = $2 AND state = 'completed'";
    return (await client.query(text, [scope, key])).rows.length > 0;
  } catch (error) {
    // It may not even show the tables yet.
    if ((error as { code?: unknown }).code === undefinedTable) return false;
    throw error;
  } finally {
    await client.end();
  }
}

const undefinedTable = "42P01";
