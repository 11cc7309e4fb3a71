import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Client } from "pg";
import type { TestProject } from "vitest/node";
import { startPostgres } from "./postgres-server.ts";

declare module "vitest" {
  export interface ProvidedContext {
    /** A server on which the tests may create databases. */
    postgresUrl: string;
  }
}

/** One Postgres per run, shared by all test files; without one the run fails, because skipped tests prove nothing. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // Here and not where pages are tested, because two test files at once would build them over each other.
  const root = fileURLToPath(new URL("../../", import.meta.url));
  execFileSync(process.execPath, ["scripts/build-pages.js"], { cwd: root });
  const ownUrl = process.env.LATCHKEY_TEST_POSTGRES_URL;
  if (ownUrl) {
    await assertAnswers(ownUrl);
    project.provide("postgresUrl", ownUrl);
    return async () => {};
  }
  const server = await startPostgres();
  project.provide("postgresUrl", server.url);
  return () => server.remove();
}

async function assertAnswers(url: string): Promise<void> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
  try {
    await client.connect();
    await client.query("SELECT 1");
  } catch (error) {
    // The URL itself stays out of the message, because it may hold a password.
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(`The server in LATCHKEY_TEST_POSTGRES_URL does not answer: ${reason}.`);
  } finally {
    await client.end().catch(() => {});
  }
}
