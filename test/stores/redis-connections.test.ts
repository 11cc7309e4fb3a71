import { Cluster, Redis } from "ioredis";
import { createClient, createCluster } from "redis";
import { describe, expect, it } from "vitest";
import { linkOf, type RedisLink } from "../../src/stores/redis/client.ts";
import { connectionLimits } from "../../src/stores/redis/connecting.ts";
import { type RedisClient, redisStore } from "../../src/stores/redis/store.ts";
import type { RedisServer } from "../support/redis-server.ts";
import { request } from "../support/reserve-request.ts";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { eventually } from "./postgres-support.ts";
import { serversOfTests } from "./redis-support.ts";

const { cleanUp, start } = serversOfTests();

/** The address of a server, behind which there can be another one later. */
async function addressOf({ port }: RedisServer): Promise<TcpProxy> {
  const proxy = await startTcpProxy({ host: "127.0.0.1", port });
  cleanUp.push(() => proxy.close());
  return proxy;
}

function plain({ port }: { readonly port: number }): Redis {
  const client = new Redis(port, "127.0.0.1");
  cleanUp.push(() => client.disconnect());
  return client;
}

/** Of one node, which is all that a connection is about. */
async function startCluster(): Promise<{ readonly server: RedisServer; readonly node: Redis }> {
  const server = await start("--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1");
  const node = plain(server);
  await node.call("CLUSTER", "ADDSLOTSRANGE", "0", "16383");
  await eventually(async () => String(await node.cluster("INFO")).includes("cluster_state:ok"), 10_000);
  return { server, node };
}

interface Library {
  single(port: number): RedisClient;
  cluster(port: number): RedisClient;
}

const libraries: Readonly<Record<string, Library>> = {
  ioredis: {
    single: (port) => new Redis(port, "127.0.0.1", { lazyConnect: true }),
    cluster: (port) => new Cluster([{ host: "127.0.0.1", port }], { lazyConnect: true }),
  },
  redis: {
    single: (port) => createClient({ url: `redis://127.0.0.1:${port}` }),
    cluster: (port) => createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] }),
  },
};

function link(client: RedisClient, limits: Partial<typeof connectionLimits> = {}): RedisLink {
  const opened = linkOf(client, { ...connectionLimits, ...limits });
  cleanUp.push(() => opened.close());
  return opened;
}

function answers(asked: RedisLink): Promise<boolean> {
  return asked.send("key", ["GET", "key"]).then(
    () => true,
    () => false,
  );
}

describe.each(Object.entries(libraries))("a connection of %s", (_name, { single, cluster }) => {
  it("one whose host has vanished is given up, and the next call has another", async () => {
    const proxy = await addressOf(await start());
    const asked = link(single(proxy.port), { silenceMs: 400 });
    expect(await answers(asked)).toBe(true);
    proxy.strand();
    expect(await answers(asked)).toBe(false);
    await eventually(() => answers(asked));
  });

  it("the same in a cluster", async () => {
    const { server, node } = await startCluster();
    const proxy = await addressOf(server);
    await node.config("SET", "cluster-announce-port", String(proxy.port));
    const asked = link(cluster(proxy.port), { silenceMs: 400 });
    expect(await answers(asked)).toBe(true);
    proxy.strand();
    expect(await answers(asked)).toBe(false);
    await eventually(() => answers(asked));
  }, 20_000);

  it("one that was accepted by nobody is given up as well", async () => {
    const proxy = await addressOf(await start());
    proxy.stall();
    const asked = link(single(proxy.port), { silenceMs: 400 });
    const first = answers(asked);
    // It has said what it says first, and nobody will ever answer that.
    await new Promise((resolve) => setTimeout(resolve, 300));
    proxy.strand();
    proxy.flow();
    expect(await first).toBe(false);
    await eventually(() => answers(asked), 10_000);
  }, 20_000);

  it("one that waits for replicas is not silent", async () => {
    const asked = link(single((await start()).port), { silenceMs: 200 });
    await asked.send("key", ["SET", "key", "value"]);
    expect(await asked.waitForReplicas("key", { count: 1, timeoutMs: 1_000 })).toBe(0);
  });

  it("after a planned switch-over the new primary is written to", async () => {
    const old = await start();
    const next = await start("--replicaof", "127.0.0.1", String(old.port), "--repl-diskless-sync-delay", "0");
    const proxy = await addressOf(old);
    const store = redisStore(single(proxy.port), { warn: () => {} });
    cleanUp.push(() => store.close());
    await store.reserve(request());
    const [atOld, atNext] = [plain(old), plain(next)];
    await eventually(
      async () => (await atNext.info("replication")).includes("master_link_status:up"),
      10_000,
    );
    await atNext.call("REPLICAOF", "NO", "ONE");
    proxy.pointTo({ host: "127.0.0.1", port: next.port });
    await atOld.call("REPLICAOF", "127.0.0.1", String(next.port));
    await eventually(
      async () => (await store.reserve(request()).catch(() => undefined))?.kind === "execute",
      10_000,
    );
  }, 30_000);

  it("a listener whose host has vanished says so, and hears again", async () => {
    const server = await start();
    const proxy = await addressOf(server);
    const news: string[] = [];
    const listening = link(single(proxy.port), { pingMs: 200 }).listen({
      heard: (_channel, message) => void news.push(message.toString()),
      connected: () => void news.push("connected"),
      interrupted: () => void news.push("interrupted"),
    });
    cleanUp.push(() => listening.close());
    await listening.subscribe(["one"]);
    await listening.subscribe(["two"]);
    // Many pings are answered, and nothing happens.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(new Set(news)).toEqual(new Set(["connected"]));
    proxy.strand();
    const publisher = plain(server);
    await publisher.publish("one", "missed");
    await eventually(() => news.includes("interrupted") && news.at(-1) === "connected");
    // What the old connection does in its end is no news.
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    expect(news.at(-1)).toBe("connected");
    for (const channel of ["one", "two"]) {
      await publisher.publish(channel, `on ${channel}`);
      await eventually(() => news.at(-1) === `on ${channel}`);
    }
  }, 20_000);
});

/** As version 5 of ioredis has it: the options of a cluster's connections are replaced, not completed. */
class ForgetfulCluster extends Cluster {
  override duplicate(_nodes?: unknown, options: object = {}): Cluster {
    return new Cluster([...startNodes(this)], { ...this.options, ...options } as object);
  }
}

function startNodes(cluster: Cluster) {
  return (cluster as unknown as { readonly startupNodes: ConstructorParameters<typeof Cluster>[0] })
    .startupNodes;
}

it.each([
  ["ioredis", Cluster],
  ["a version of ioredis that replaces them", ForgetfulCluster],
])(
  "the password of a cluster's connections is that of the user's, with %s",
  async (_name, Made) => {
    const { server, node } = await startCluster();
    await node.config("SET", "requirepass", "secret");
    const nodes = [{ host: "127.0.0.1", port: server.port }];
    const asked = link(new Made(nodes, { lazyConnect: true, redisOptions: { password: "secret" } }));
    expect(await answers(asked)).toBe(true);
  },
  20_000,
);
