import { execFile } from "node:child_process";
import { chown, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { Client } from "pg";
import { type PostgresServer, startPostgres } from "./postgres-server.ts";

/** A primary and its standby, of which each can take the other's place any number of times. */
export interface PostgresPair {
  readonly primary: PostgresServer;
  readonly standby: PostgresServer;
  /** The standby hears nothing of the primary any more, as if the network between them had failed. */
  disconnect(): Promise<void>;
  /** Whatever became of the primary: the standby is the primary from now on, and has no standby of its own yet. */
  promote(): Promise<void>;
  /**
   * Makes a new standby of the primary, and removes the former primary, unless that is to live on as one that nobody
   * has told. Resolves when the new standby streams.
   */
  reseed(options?: { readonly keepFormer?: boolean }): Promise<void>;
  remove(): Promise<void>;
}

/** With `synchronous` nothing is committed before the standby has it as well. */
export async function startPostgresPair({ synchronous }: { synchronous: boolean }): Promise<PostgresPair> {
  const settings = synchronous ? { ...streaming, synchronous_standby_names: "*" } : streaming;
  let primary = await startPostgres({ settings });
  const formers: PostgresServer[] = [];
  let standby = await startStandby(primary, settings).catch(async (error) => {
    await primary.remove();
    throw error;
  });

  return {
    get primary() {
      return primary;
    },
    get standby() {
      return standby;
    },
    async disconnect() {
      const owner = await stat(primary.dataDir);
      // "all" means every database, and not replication.
      await writeOwned(join(primary.dataDir, "pg_hba.conf"), "host all all 127.0.0.1/32 trust\n", owner);
      await ask(primary.url, "SELECT pg_reload_conf()");
      await ask(primary.url, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication");
      await until(async () => (await ask(primary.url, "SELECT FROM pg_stat_replication")).length === 0);
    },
    async promote() {
      // Asked again: on a busy machine one request was seen to be without effect for half a minute.
      const promoted = "SELECT CASE WHEN pg_is_in_recovery() THEN pg_promote(true, 2) ELSE true END AS done";
      await until(async () => (await ask<{ done: boolean }>(standby.url, promoted))[0]?.done === true);
      formers.push(primary);
      primary = standby;
    },
    async reseed({ keepFormer = false } = {}) {
      if (!keepFormer) await Promise.all(formers.splice(0).map((former) => former.remove()));
      standby = await startStandby(primary, settings);
    },
    async remove() {
      await Promise.all([...new Set([primary, standby, ...formers])].map((server) => server.remove()));
    },
  };
}

const streaming = {
  wal_level: "replica",
  // Processes are killed here, not machines: what was written to a file stays, and waiting for the disk proves nothing.
  fsync: "off",
  wal_keep_size: "512MB",
  wal_retrieve_retry_interval: "50ms",
};

/** As pg_basebackup does it, which the package for tests does not hold: a copy between two marks in the log. */
async function startStandby(
  primary: PostgresServer,
  settings: Record<string, string>,
): Promise<PostgresServer> {
  const conninfo = `host=127.0.0.1 port=${primary.port} user=postgres`;
  const standby = await startPostgres({
    settings: { ...settings, primary_conninfo: conninfo },
    seed: (dataDir) => copyRunning(primary, dataDir),
  });
  const streams = "SELECT FROM pg_stat_replication WHERE state = 'streaming' AND replay_lsn IS NOT NULL";
  try {
    await until(async () => (await ask(primary.url, streams)).length > 0);
    return standby;
  } catch (error) {
    await standby.remove();
    throw error;
  }
}

async function until(asked: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + patienceMs;
  while (!(await asked())) {
    if (performance.now() > deadline) throw new Error(`not within ${patienceMs} ms: ${asked}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const patienceMs = 15_000;

async function copyRunning(primary: PostgresServer, dataDir: string): Promise<void> {
  const client = new Client({ connectionString: primary.url });
  await client.connect();
  try {
    const { rows: versions } = await client.query<{ isold: boolean }>(
      "SELECT current_setting('server_version_num')::int < 150000 AS isold",
    );
    const { start, stop } = versions[0]?.isold ? marksOf14 : marks;
    // Both marks have to be made in one session.
    await client.query(start);
    await copyFolder(primary.dataDir, dataDir);
    const { rows } = await client.query<{ labelfile: string }>(stop);
    const owner = await stat(primary.dataDir);
    await writeOwned(join(dataDir, "backup_label"), rows[0]?.labelfile ?? "", owner);
    await writeOwned(join(dataDir, "standby.signal"), "", owner);
    for (const own of ["postmaster.pid", "postmaster.opts"]) await rm(join(dataDir, own), { force: true });
  } finally {
    await client.end();
  }
}

/** Whoever runs the servers may not be who runs the tests. */
async function writeOwned(path: string, text: string, owner: { uid: number; gid: number }): Promise<void> {
  await writeFile(path, text);
  await chown(path, owner.uid, owner.gid);
}

const marks = {
  start: "SELECT pg_backup_start('standby', true)",
  stop: "SELECT labelfile FROM pg_backup_stop(false)",
};
const marksOf14 = {
  start: "SELECT pg_start_backup('standby', true, false)",
  stop: "SELECT labelfile FROM pg_stop_backup(false, false)",
};

/** Files that come and go meanwhile are no trouble: what they hold is in the log as well. */
async function copyFolder(from: string, to: string): Promise<void> {
  await run("cp", ["-a", from, to]).catch(() => {});
}

const run = promisify(execFile);

async function ask<R extends object>(url: string, statement: string): Promise<R[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query<R>(statement)).rows;
  } finally {
    await client.end();
  }
}
