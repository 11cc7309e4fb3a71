import { ConfigError } from "../../core/errors.ts";
import { installed, missing } from "../driver.ts";
import type { RedisClient } from "./client.ts";

/**
 * A client for one server, of whichever library there is. It only says how to connect: stores open connections of their
 * own, and close them.
 */
export async function redisClient(url: string): Promise<RedisClient> {
  // Both libraries know their schemes in small letters only, and would connect without TLS.
  const known = url.replace(/^[^:]*/, (scheme) => scheme.toLowerCase());
  const account = /^rediss?:\/\/([^@/?#]*)@/.exec(known)?.[1] ?? "";
  parseAccount(account);
  const ioredis = await installed("ioredis", () => import("ioredis"));
  if (ioredis !== undefined) return new ioredis.Redis(known, { lazyConnect: true });
  const { createClient } = await nodeRedis();
  return createClient({ url: known });
}

/** The same for a cluster, by some of its nodes: the rest is found through them. */
export async function redisClusterClient(url: string): Promise<RedisClient> {
  const { nodes, tls, username, password } = parseClusterUrl(url);
  const account = {
    ...(username === undefined ? {} : { username }),
    ...(password === undefined ? {} : { password }),
  };
  const ioredis = await installed("ioredis", () => import("ioredis"));
  if (ioredis !== undefined) {
    const redisOptions = { ...account, ...(tls ? { tls: {} } : {}) };
    return new ioredis.Cluster([...nodes], { lazyConnect: true, redisOptions });
  }
  const { createCluster } = await nodeRedis();
  const scheme = tls ? "rediss" : "redis";
  return createCluster({
    rootNodes: nodes.map(({ host, port }) => ({ url: `${scheme}://${bracketed(host)}:${port}` })),
    defaults: { ...account, ...(tls ? { socket: { tls: true } } : {}) },
  });
}

interface Account {
  readonly username: string | undefined;
  readonly password: string | undefined;
}

interface ClusterUrl extends Account {
  readonly nodes: readonly { readonly host: string; readonly port: number }[];
  readonly tls: boolean;
}

/** `redis-cluster://user:password@host:7000,host:7001`; a list of hosts is not a URL that the standard knows. */
export function parseClusterUrl(url: string): ClusterUrl {
  const [, secure, account, hosts = ""] =
    /^redis(s?)-cluster:\/\/(?:([^@]*)@)?([^/?#]+)\/?$/i.exec(url) ?? [];
  const nodes = hosts.split(",").map((text) => {
    const [, v6, name, port = "6379"] =
      /^(?:\[([0-9a-f:]+)\]|([^:[\]]+))(?::(\d+))?$/i.exec(text.trim()) ?? [];
    return { host: v6 ?? name ?? "", port: Number(port) };
  });
  if (nodes.some(({ host, port }) => host === "" || port > 65_535)) {
    throw new ConfigError(
      "a Redis Cluster's URL lists some of its nodes: redis-cluster://host:7000,host:7001, or rediss-cluster:// with TLS",
    );
  }
  return { nodes, tls: secure?.toLowerCase() === "s", ...parseAccount(account ?? "") };
}

/** `user:password`; a colon after the first one is part of the password. */
function parseAccount(account: string): Account {
  const [, username = "", password = ""] = /^([^:]*):?(.*)$/s.exec(account) ?? [];
  try {
    return {
      username: decodeURIComponent(username) || undefined,
      password: decodeURIComponent(password) || undefined,
    };
  } catch {
    throw new ConfigError(
      "the name or the password in a Redis URL has a % that is not followed by two hexadecimal digits: write % as %25",
    );
  }
}

async function nodeRedis(): Promise<typeof import("redis")> {
  const redis = await installed("redis", () => import("redis"));
  if (redis === undefined) throw new ConfigError(missing("ioredis or redis", "ioredis"));
  return redis;
}

function bracketed(host: string): string {
  return host.includes(":") ? `[${host}]` : host;
}
