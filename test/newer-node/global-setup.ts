import type { TestProject } from "vitest/node";

/** The server of the tests beside which this run takes place. */
export default function setup(project: TestProject): void {
  const url = process.env.LATCHKEY_TEST_POSTGRES_URL;
  if (!url) throw new Error("run test/newer-node/newer-node.test.ts, which says where Postgres is");
  project.provide("postgresUrl", url);
}
