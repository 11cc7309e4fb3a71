import { once } from "node:events";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { layeredStore, type RedisClient } from "../../src/stores/layered/store.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { useDatabase } from "../stores/postgres-support.ts";
import { ioredisCluster, ioredisSingle } from "../stores/redis-support.ts";
import {
  type RedisCluster,
  type RedisServer,
  startRedis,
  startRedisCluster,
} from "../support/redis-server.ts";
import { service } from "./support.ts";

const database = useDatabase();
const forget = { tenant: "acme", by: "ada" };
const body = "what acme was told";

/** Many glob characters, all of which are meant as they are. */
const prefix = "a*b[1-3]?";
const foreign = ["a*b[1-3]?:frontier", "aXb2c:front:x"];

let redis: RedisServer;
let cluster: RedisCluster;
beforeAll(async () => {
  [redis, cluster] = await Promise.all([startRedis(), startRedisCluster()]);
}, 60_000);
afterAll(async () => {
  await Promise.all([redis?.stop(), cluster?.stop()]);
});

/** A process with Redis in front of Postgres. */
function layered(client: RedisClient) {
  const truth = postgresStore(database.pool(), { listen: true });
  const store = layeredStore(truth, client, { prefix, frontTimeoutMs: 2_000 });
  return service({ store }, {}, () => new Response(body));
}

const subjects = {
  "a Redis": () => ({ ...ioredisSingle(redis.url), nodes: [new Redis(redis.url)] }),
  "a Redis Cluster": () => ({
    ...ioredisCluster(cluster),
    // Replicas answer only whoever says that it does not want to write.
    nodes: cluster.nodes.map(({ host, port }) => new Redis(port, host, { readOnly: true })),
  }),
};

describe.each(Object.entries(subjects))("what %s in front of the store holds of a tenant", (name, open) => {
  it("is removed with what the store holds, and nothing else is", async () => {
    const { client, nodes, end } = open();
    for (const key of foreign) await (client as Redis).set(key, "not Latchkey's");
    const api = layered(client);
    let posts = 0;
    // Until the front is in use: it has to hear of busts, and to know the store's clock.
    const isHeld = async () => {
      for (let more = 0; more < 20; more += 1) await api.post(`${name.replaceAll(" ", "-")}-${++posts}`);
      return (await entriesIn(nodes)).some(({ value }) => value.includes(body));
    };
    await expect.poll(isHeld, { timeout: 10_000 }).toBe(true);

    expect(await api.latchkey.forgetTenant(forget)).toEqual({ removed: posts, unsettled: 0 });
    // A replica has everything a moment later.
    const left = async () =>
      (await entriesIn(nodes)).map(({ key }) => key).filter((key) => !foreign.includes(key));
    await expect.poll(left).toEqual([]);
    expect(new Set((await entriesIn(nodes)).map(({ key }) => key))).toEqual(new Set(foreign));
    await api.latchkey.close();
    for (const node of nodes) node.disconnect();
    await end();
  });
});

/** Everything that is on these servers and could be taken for an entry, as a copy of their memory has it. */
async function entriesIn(
  nodes: readonly Redis[],
): Promise<{ readonly key: string; readonly value: string }[]> {
  const found = nodes.map(async (node) => {
    const keys = (await node.keys("a*")).filter((key) => key.startsWith("a*b") || foreign.includes(key));
    return Promise.all(keys.map(async (key) => ({ key, value: (await node.get(key)) ?? "" })));
  });
  return (await Promise.all(found)).flat();
}

it("what Redis cannot be asked to remove is warned about, and the store forgets all the same", async () => {
  const client = new Redis("redis://127.0.0.1:1", { lazyConnect: true, retryStrategy: () => null });
  client.on("error", () => {});
  const api = layered(client);
  await api.post("unreachable");
  const warned = once(process, "warning");
  expect(await api.latchkey.forgetTenant(forget)).toEqual({ removed: 1, unsettled: 0 });
  const [warning] = (await warned) as [Error & { code?: string }];
  expect(warning.code).toBe("LATCHKEY_LAYERED");
  expect(warning.message).toMatch(/up to a day.*forget the tenant again/);
  await api.latchkey.close();
});
