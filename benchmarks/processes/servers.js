// The tests' own servers, kept by a process of its own: the tests are TypeScript, and what is measured is not to be
// transformed. It tells its parent the addresses and the servers' own tools, and takes the servers down when the parent
// lets go of it. `servers.js redis` starts only that one.
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { tsImport } from "tsx/esm/api";

const load = (/** @type {string} */ name) => tsImport(`../../test/support/${name}.ts`, import.meta.url);
const [redis, mariadb, dynamodb, debian] = await Promise.all(
  ["redis-server", "mariadb-server", "dynamodb-server", "debian-packages"].map(load),
);

// As people run it who want to keep their keys: a log that reaches the disk every second.
const startRedis = () => redis.startRedis({ args: ["--appendonly", "yes"] });
await (process.argv[2] === "redis" ? tellOfRedis() : tellOfAll());

async function tellOfRedis() {
  const single = await startRedis();
  process.on("disconnect", () => void single.stop());
  process.send?.({ redis: single.url });
}

async function tellOfAll() {
  const [single, cluster, maria, dynamo] = await Promise.all([
    startRedis(),
    redis.startRedisCluster(),
    mariadb.startMariadb(),
    dynamodb.startDynamoDb(),
  ]);
  process.on("disconnect", () => {
    void Promise.all([single.stop(), cluster.stop(), maria.remove(), dynamo.stop()]);
  });
  process.send?.({
    redis: single.url,
    redisCluster: cluster.url,
    mariadb: (await maria.createDatabase()).url,
    dynamodb: dynamo.url,
    tools: { redisBenchmark: await redisBenchmark(), mariadbSlap: await mariadbSlap() },
  });
}

async function redisBenchmark() {
  const { command, env } = await redis.findRedis();
  const tool = join(dirname(command), "redis-benchmark");
  return existsSync(tool) ? { command: tool, env } : undefined;
}

async function mariadbSlap() {
  const installed = debian.onPath("mariadb-slap");
  if (installed !== undefined) return { command: installed, env: {} };
  try {
    const home = await debian.unpackDebianPackages({ packages: ["mariadb-client", "libmariadb3"] });
    return {
      command: join(home, "usr/bin/mariadb-slap"),
      env: { LD_LIBRARY_PATH: debian.librariesOf(home) },
    };
  } catch {
    return undefined; // It is not needed for anything else, and not every machine has Debian's packages.
  }
}
