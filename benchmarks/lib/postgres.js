import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import pg from "pg";

/** @typedef {{ url: string, version: string, stop(): Promise<void> }} PostgresServer */

// A server that is used in earnest has more than the 128 MB and the checkpoint every gigabyte of the defaults. What a
// commit waits for (fsync, synchronous_commit) is as it comes: on.
const settings = { shared_buffers: "512MB", max_wal_size: "4GB" };

/** The server in DATABASE_URL, or else the one that the tests start. */
export async function startPostgres() {
  const named = process.env.DATABASE_URL;
  if (named) return { url: named, version: await versionOf(named), async stop() {} };
  const support = new URL("../../test/support/postgres-server.ts", import.meta.url);
  // In a process of its own, because it is TypeScript: what is measured is not transformed.
  const script = `
    import { startPostgres } from ${JSON.stringify(support.href)};
    const server = await startPostgres({ settings: ${JSON.stringify(settings)} });
    console.log(server.url);
    process.stdin.on("end", () => server.remove()).resume();`;
  const child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "--eval", script], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const exit = once(child, "exit");
  const url = await Promise.race([
    once(createInterface(child.stdout), "line").then(([line]) => String(line)),
    exit.then(() => Promise.reject(new Error("Postgres did not start"))),
  ]);
  return {
    url,
    version: await versionOf(url),
    async stop() {
      child.stdin.end();
      await exit;
    },
  };
}

/**
 * An empty database of its own for the time of `use`.
 *
 * @template T
 * @param {PostgresServer} server
 * @param {(url: string) => Promise<T>} use
 * @returns {Promise<T>}
 */
export async function withDatabase(server, use) {
  const name = `latchkey_bench_${randomBytes(6).toString("hex")}`;
  await query(server.url, `CREATE DATABASE ${name}`);
  const url = new URL(server.url);
  url.pathname = `/${name}`;
  try {
    return await use(url.href);
  } finally {
    await query(server.url, `DROP DATABASE ${name} WITH (FORCE)`);
  }
}

/**
 * @template T
 * @param {(server: PostgresServer) => Promise<T>} use
 * @returns {Promise<T>}
 */
export async function withPostgres(use) {
  const server = await startPostgres();
  try {
    return await use(server);
  } finally {
    await server.stop();
  }
}

/**
 * One statement on a connection of its own.
 *
 * @param {string} url
 * @param {string} text
 * @param {readonly unknown[]} [parameters]
 * @returns {Promise<any[]>}
 */
export async function query(url, text, parameters) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(text, parameters && [...parameters])).rows;
  } finally {
    await client.end();
  }
}

/** @param {string} url */
async function versionOf(url) {
  const [row] = await query(url, "SHOW server_version");
  return `Postgres ${row.server_version}`;
}

/** Where the server's own benchmark tool is, if it is anywhere. */
export function findPgbench() {
  const debian = "/usr/lib/postgresql"; // Debian keeps each major's programs apart and off PATH.
  const majors = existsSync(debian) ? readdirSync(debian).sort((a, b) => Number(b) - Number(a)) : [];
  const folders = [
    ...(process.env.PATH ?? "").split(delimiter).filter((folder) => folder !== ""),
    ...majors.map((major) => join(debian, major, "bin")),
  ];
  return folders.map((folder) => join(folder, "pgbench")).find((path) => existsSync(path));
}

/**
 * @param {object} options
 * @param {string} options.pgbench
 * @param {string} options.url
 * @param {string} options.script a file
 * @param {number} options.clients
 * @param {number} options.seconds
 * @returns {Promise<number>} transactions of the script per second
 */
export async function runPgbench({ pgbench, url, script, clients, seconds }) {
  // pgbench counts whole seconds.
  const args = [
    "-n",
    "-M",
    "prepared",
    "-c",
    clients,
    "-j",
    "2",
    "-T",
    Math.ceil(seconds),
    "-f",
    script,
    url,
  ];
  const { stdout } = await promisify(execFile)(pgbench, args.map(String));
  const [, rate] = /^tps = ([\d.]+)/m.exec(stdout) ?? [];
  if (rate === undefined) throw new Error(`pgbench printed no rate: ${stdout}`);
  return Number(rate);
}
