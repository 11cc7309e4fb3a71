import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

/*
 * What may depend on the version of Node, for a run on another one than that of the other tests: the SQLite that it has
 * built in, its HTTP, and how it tracks contexts.
 */
export default defineConfig({
  root: fileURLToPath(new URL("../../", import.meta.url)),
  resolve: {
    alias: { libsql: fileURLToPath(new URL("../support/libsql-by-node.ts", import.meta.url)) },
  },
  test: {
    include: ["core", "engine", "http", "adapters", "operation", "stores/sqlite*"].map((part) =>
      part.includes("*") ? `test/${part}.test.ts` : `test/${part}/**/*.test.ts`,
    ),
    globalSetup: [fileURLToPath(new URL("global-setup.ts", import.meta.url))],
    // The other tests are running beside it.
    maxWorkers: 1,
    testTimeout: 40_000,
    hookTimeout: 60_000,
  },
});
