import { randomUUID } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ConfigError, StoreError } from "../../src/core/errors.ts";
import { driver, installed } from "../../src/stores/driver.ts";
import { openStore } from "../../src/stores/open-store.ts";
import { parseClusterUrl, redisClient } from "../../src/stores/redis/connect.ts";
import { freshDatabase } from "../support/database.ts";
import { startDynamoDb } from "../support/dynamodb-server.ts";
import { startMariadb } from "../support/mariadb-server.ts";
import { startRedis, startRedisCluster } from "../support/redis-server.ts";
import { again, request } from "../support/reserve-request.ts";
import { complete, leaseOf } from "./postgres-support.ts";

const folder = mkdtempSync(join(tmpdir(), "latchkey-urls-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Named {
  readonly url: string;
  readonly name: string;
  readonly stop?: () => Promise<unknown>;
}

const kinds: Readonly<Record<string, () => Promise<Named>>> = {
  "memory:": async () => ({ url: "memory:", name: "memory" }),
  "sqlite:": async () => ({ url: `sqlite:${join(folder, "records.db")}`, name: "sqlite" }),
  "sqlite:///": async () => ({ url: `sqlite://${join(folder, "other.db")}`, name: "sqlite" }),
  "postgres://": async () => {
    const { url, drop } = await freshDatabase();
    return { url, name: "postgres", stop: drop };
  },
  "mysql://": async () => {
    const server = await startMariadb();
    return { url: (await server.createDatabase()).url, name: "mysql", stop: server.remove };
  },
  "redis://": async () => {
    const { url, stop } = await startRedis();
    return { url, name: "redis", stop };
  },
  "redis-cluster://": async () => {
    const { url, stop } = await startRedisCluster();
    return { url, name: "redis", stop };
  },
  "dynamodb://": async () => {
    const { url, stop } = await startDynamoDb();
    const table = `urls-${randomUUID()}`;
    return {
      url: `dynamodb://test:test@local/${table}?endpoint=${encodeURIComponent(url)}`,
      name: "dynamodb",
      stop,
    };
  },
};

describe.each(Object.entries(kinds))("a store by a URL with %s", (kind, start) => {
  let named: Named;

  beforeAll(async () => {
    named = await start();
  }, 60_000);
  afterAll(() => named?.stop?.());

  it("is migrated, reserves, completes, replays, and closes what it opened", async () => {
    const store = await openStore(named.url, { migrate: true });
    expect(store.name).toBe(named.name);
    const wanted = request({ key: randomUUID() });
    await store.settle(await leaseOf(store, wanted), complete);
    expect((await store.reserve(again(wanted))).kind).toBe("replay");
    await store.close();
    if (kind === "memory:") return;

    const reopened = await openStore(named.url);
    expect((await reopened.reserve(again(wanted))).kind).toBe("replay");
    await reopened.close();
    await reopened.close();
    // The SDK would open connections again for whoever goes on asking.
    if (kind === "dynamodb://") return;
    await expect(reopened.reserve(again(wanted))).rejects.toThrow(Error);
  });
});

describe("what is asked for with a URL", () => {
  it("a distributed engine gets its own tables", async () => {
    const database = await freshDatabase();
    const store = await openStore(database.url, { migrate: true, postgres: { engine: "distributed" } });
    const wanted = request();
    await store.settle(await leaseOf(store, wanted), complete);
    expect((await store.reserve(again(wanted))).kind).toBe("replay");
    await store.close();
    await database.drop();
  });

  it("a DynamoDB store has its options, and those that make no sense are refused", async () => {
    // Nothing is asked of a server until there is a call.
    const url = "dynamodb://test:test@local/latchkey?endpoint=http://127.0.0.1:1";
    const store = await openStore(url, { dynamodb: { largeBodies: "refuse" } });
    expect(store.capabilities.responseBytesMax).toBe(360 * 1024);
    await store.close();
    await expect(openStore(url, { dynamodb: { clockSkewMs: -1 } })).rejects.toThrow(ConfigError);
  });

  it("tables in partitions are not made by the way, because nobody has said how long a partition is", async () => {
    const opened = openStore("postgres://localhost/db", { migrate: true, postgres: { partitioned: true } });
    await expect(opened).rejects.toThrow(/made by migrate\(pool, \{ partitioned/);
  });
});

describe("a URL that names no store", () => {
  it.each([
    ["", /begins with its kind: use memory:, sqlite/],
    ["latchkey.db", /begins with its kind/],
    ["oracle://scott:tiger@host/db", /there is no store for "oracle:" URLs: use memory:/],
    ["memory:records", /nothing follows memory:/],
    ["sqlite:", /names its file: sqlite:\.\/file\.db/],
    ["sqlite://file.db", /names its file/],
    ["dynamodb://eu-west-1", /dynamodb:\/\/region\/table/],
    ["dynamodb:///table", /dynamodb:\/\/region\/table/],
    ["redis-cluster://", /lists some of its nodes/],
    ["redis-cluster://host:99999", /lists some of its nodes/],
    ["redis-cluster://scott:tiger%zz@host", /write % as %25/],
    ["redis://scott:tiger%zz@host", /write % as %25/],
  ])("%s is refused with a sentence", async (url, message) => {
    const refused = openStore(url);
    await expect(refused).rejects.toThrow(ConfigError);
    await expect(refused).rejects.toThrow(message);
    await expect(refused).rejects.not.toThrow(/tiger/);
  });

  it("a database that cannot be reached is an error of the store, without the password", async () => {
    const opened = openStore("postgres://scott:tiger@127.0.0.1:1/db", { migrate: true });
    await expect(opened).rejects.toThrow(/ECONNREFUSED/);
    await expect(opened).rejects.not.toThrow(/tiger/);
    const store = await openStore("postgres://scott:tiger@127.0.0.1:1/db");
    await expect(store.reserve(request())).rejects.toThrow(StoreError);
    await store.close();
  });

  it("a folder that is no file is told by SQLite, and nothing is left open", async () => {
    await expect(openStore(`sqlite:${folder}`)).rejects.toThrow(StoreError);
    expect(existsSync(folder)).toBe(true);
  });
});

describe("a driver that is not installed", () => {
  it("is asked for by name, with the command that installs it", async () => {
    // A name that is not a literal is not looked up by the compiler.
    const absent = "latchkey-no-such-driver";
    for (const asked of [absent, `${absent}/promise`]) {
      const wanted = driver(absent, () => import(/* @vite-ignore */ asked));
      await expect(wanted).rejects.toThrow(ConfigError);
      await expect(wanted).rejects.toThrow(
        /needs the package latchkey-no-such-driver, which is not installed: run `npm install latchkey-no-such-driver`/,
      );
    }
  });

  it("one that is installed and broken is not taken for a missing one", async () => {
    const broken = () => Promise.reject(new SyntaxError("broken"));
    await expect(installed("mysql2", broken)).rejects.toThrow("broken");
  });

  it("nor is one that is installed without what it needs itself", async () => {
    const needed = "latchkey-no-such-dependency";
    const lacking = installed("mysql2", () => import(/* @vite-ignore */ needed));
    await expect(lacking).rejects.toThrow(needed);
  });
});

describe("a cluster's URL", () => {
  it("lists nodes, with an account, and with TLS", () => {
    expect(parseClusterUrl("redis-cluster://one:7000,two,[::1]:7002")).toEqual({
      nodes: [
        { host: "one", port: 7000 },
        { host: "two", port: 6379 },
        { host: "::1", port: 7002 },
      ],
      tls: false,
      username: undefined,
      password: undefined,
    });
    expect(parseClusterUrl("rediss-cluster://me:s%40cret@one/")).toEqual({
      nodes: [{ host: "one", port: 6379 }],
      tls: true,
      username: "me",
      password: "s@cret",
    });
  });

  it("has TLS in capitals as well, and a password with colons as it is", () => {
    expect(parseClusterUrl("REDISS-CLUSTER://me:a:b:c@one")).toMatchObject({
      tls: true,
      username: "me",
      password: "a:b:c",
    });
  });
});

describe("a single server's URL", () => {
  it("has TLS in capitals as well", async () => {
    const client = await redisClient("REDISS://me:Secret@One:7000");
    expect((client as Redis).options).toMatchObject({ tls: expect.anything(), password: "Secret" });
  });
});
