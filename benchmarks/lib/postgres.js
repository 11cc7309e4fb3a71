import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync } from "node:fs";
import { totalmem } from "node:os";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import pg from "pg";
import { startChild } from "./child.js";

/** @typedef {{ url: string, version: string, stop(): Promise<void> }} PostgresServer */

// A server that is used in earnest has more than the 128 MB and the checkpoint every gigabyte of the defaults: a quarter of
// the memory is what Postgres's own documentation begins with. What a commit waits for (fsync, synchronous_commit) is as it
// comes: on. Seven contenders with pools of twenty and the sixty-four clients of pgbench are connected at once.
const settings = {
  shared_buffers: `${Math.floor(totalmem() / 4 / 2 ** 20)}MB`,
  min_wal_size: "1GB",
  max_wal_size: "4GB",
  max_connections: "300",
};

/**
 * The tests' own server, or the one that is named. An application's DATABASE_URL is not asked: nobody wants their
 * database under full load because a variable was set.
 *
 * @returns {Promise<PostgresServer>}
 */
export async function startPostgres() {
  const named = process.env.LATCHKEY_BENCH_POSTGRES_URL;
  if (named) return { url: named, version: await versionOf(named), async stop() {} };
  /** @type {Awaited<ReturnType<typeof startChild<{ url: string }>>>} */
  const { child, message, exit } = await startChild("postgres-server.js", [JSON.stringify(settings)]);
  const { url } = message;
  await useLogFiles(url);
  return {
    url,
    version: await versionOf(url),
    async stop() {
      child.disconnect();
      await exit;
    },
  };
}

/**
 * A server that has been running for a while writes its log over files that it has used before. A new one makes each of them,
 * 16 MB of zeros, while everybody waits: twice a second for the fastest of the contenders.
 *
 * @param {string} url
 */
async function useLogFiles(url) {
  await query(
    url,
    `DO $$ BEGIN
       FOR file IN 1..64 LOOP
         PERFORM pg_logical_emit_message(false, 'latchkey', 'used');
         PERFORM pg_switch_wal();
       END LOOP;
     END $$`,
  );
  await query(url, "CHECKPOINT");
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
    await drop(server.url, name);
  }
}

/**
 * Whoever has said goodbye gets a moment to be gone: to disconnect them would be an error that nobody listens for any
 * more.
 *
 * @param {string} serverUrl
 * @param {string} name
 */
async function drop(serverUrl, name) {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    const rows = await query(serverUrl, "SELECT FROM pg_stat_activity WHERE datname = $1", [name]);
    if (rows.length === 0) break;
    await sleep(10);
  }
  await query(serverUrl, `DROP DATABASE ${name} WITH (FORCE)`);
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
 * @returns {Promise<Record<string, unknown>[]>}
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
  return `Postgres ${row?.server_version}`;
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
