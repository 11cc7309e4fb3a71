// The tests' own servers, kept by a process of its own: the tests are TypeScript, and what is measured is not to be
// transformed. It tells its parent the addresses, and takes the servers down when the parent lets go of it.
import { tsImport } from "tsx/esm/api";

const load = (/** @type {string} */ name) =>
  tsImport(`../../test/support/${name}-server.ts`, import.meta.url);

/** @type {Record<string, () => Promise<{ url: string, stop(): Promise<unknown> }>>} */
const starters = {
  redis: async () => (await load("redis")).startRedis(),
  "redis-cluster": async () => (await load("redis")).startRedisCluster(),
  mariadb: async () => {
    const server = await (await load("mariadb")).startMariadb();
    return { url: (await server.createDatabase()).url, stop: server.remove };
  },
  dynamodb: async () => (await load("dynamodb")).startDynamoDb(),
};

const names = process.argv.slice(2);
const servers = await Promise.all(names.map((name) => starters[name]?.()));
process.on("disconnect", () => void Promise.all(servers.map((server) => server?.stop())));
process.send?.(Object.fromEntries(names.map((name, index) => [name, servers[index]?.url])));
