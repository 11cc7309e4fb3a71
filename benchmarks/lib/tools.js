// What the servers' own benchmark tools say.
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { createConnection } from "mysql2/promise";
import { pgbenchScript, preparePgbench } from "./contenders.js";
import { chargeBytes } from "./payload.js";
import { findPgbench, runPgbench } from "./postgres.js";
import { seconds } from "./settings.js";

/** @typedef {{ command: string, env: Record<string, string> }} Tool */

const clients = 64;

/**
 * An INSERT and an UPDATE, prepared: an operation.
 *
 * @param {string} url
 * @returns {Promise<number | undefined>} operations per second
 */
export async function pgbenchRate(url) {
  const pgbench = findPgbench();
  if (pgbench === undefined) return undefined;
  const folder = await mkdtemp(join(tmpdir(), "latchkey-bench-"));
  try {
    const script = join(folder, "two-statements.sql");
    await preparePgbench(url);
    await writeFile(script, pgbenchScript);
    return await runPgbench({ pgbench, url, script, clients, seconds });
  } finally {
    await rm(folder, { recursive: true });
  }
}

/**
 * SETs of as many bytes as an answer has; two of them are an operation.
 *
 * @param {Tool | undefined} tool
 * @param {string} url
 * @returns {Promise<number | undefined>} operations per second
 */
export async function redisBenchmarkRate(tool, url) {
  if (tool === undefined) return undefined;
  const { hostname, port } = new URL(url);
  const args = [
    "-h",
    hostname,
    "-p",
    port,
    "-c",
    clients,
    "-n",
    100_000,
    "-r",
    1_000_000,
    "-d",
    chargeBytes.length,
  ];
  const { stdout } = await run(tool, [...args, "-t", "set", "--csv"]);
  const [, rate] = /^"SET","([\d.]+)"/m.exec(stdout) ?? [];
  if (rate === undefined) throw new Error(`redis-benchmark printed no rate: ${stdout}`);
  return Number(rate) / 2;
}

/**
 * An INSERT and an UPDATE, each its own transaction: an operation.
 *
 * @param {Tool | undefined} tool
 * @param {string} url
 * @returns {Promise<number | undefined>} operations per second
 */
export async function mariadbSlapRate(tool, url) {
  if (tool === undefined) return undefined;
  const { hostname, port, username, pathname } = new URL(url);
  const connection = await createConnection(url);
  try {
    await connection.query(
      "CREATE TABLE IF NOT EXISTS plain_records (id binary(36) PRIMARY KEY, state varchar(20) NOT NULL, response blob) ENGINE = InnoDB",
    );
  } finally {
    await connection.end();
  }
  // UUID() is the only thing that differs from one run of the statements to the next.
  const statements = [
    "INSERT INTO plain_records (id, state) VALUES (@id := UUID(), 'in_progress')",
    `UPDATE plain_records SET state = 'completed', response = x'${chargeBytes.toString("hex")}' WHERE id = @id`,
  ];
  const operations = 4_000;
  const { stdout } = await run(tool, [
    "--no-defaults",
    `--host=${hostname}`,
    `--port=${port}`,
    "--protocol=tcp",
    `--user=${username || "root"}`,
    `--create-schema=${pathname.slice(1)}`,
    "--no-drop",
    `--concurrency=${clients}`,
    `--number-of-queries=${operations * statements.length}`,
    `--query=${statements.join(";")}`,
    "--csv",
  ]);
  const [, , took] = stdout.trim().split("\n").at(-1)?.split(",") ?? [];
  if (!(Number(took) > 0)) throw new Error(`mariadb-slap printed no time: ${stdout}`);
  return operations / Number(took);
}

/**
 * @param {Tool} tool
 * @param {readonly (string | number)[]} args
 */
function run({ command, env }, args) {
  return promisify(execFile)(command, args.map(String), { env: { ...process.env, ...env } });
}
