import { inject } from "vitest";
import { createDatabase, type TestDatabase } from "./postgres-server.ts";

/** An empty database on the run's shared server, so that test files can run in parallel. */
export async function freshDatabase(): Promise<TestDatabase> {
  return createDatabase(inject("postgresUrl"));
}
