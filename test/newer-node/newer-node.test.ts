import { execFile } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, inject, it } from "vitest";
import { newerNode, newerNodes } from "../support/newer-node.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const vitest = join(dirname(createRequire(import.meta.url).resolve("vitest/package.json")), "vitest.mjs");

it.each(Object.keys(newerNodes).map(Number) as (keyof typeof newerNodes)[])(
  "on Node %i, with its own SQLite: the core, the engine, HTTP, the adapters, operations and the SQLite store",
  async (major) => {
    const node = await newerNode(major);
    const { code, output } = await ran(node, [vitest, "run", "--config", "test/newer-node/vitest.config.ts"]);
    expect(code, output).toBe(0);
    // Not that nothing ran.
    expect(Number(/ Tests +(\d+) passed/.exec(output)?.[1]), output).toBeGreaterThan(3_000);
  },
  600_000,
);

function ran(program: string, args: readonly string[]): Promise<{ code: unknown; output: string }> {
  // What this run tells its own workers is not for that one.
  const { VITEST: _, ...rest } = process.env;
  const env = {
    ...Object.fromEntries(Object.entries(rest).filter(([name]) => !name.startsWith("VITEST_"))),
    NO_COLOR: "1",
    LATCHKEY_TEST_POSTGRES_URL: inject("postgresUrl"),
  };
  return new Promise((resolve) => {
    execFile(program, args, { cwd: root, env, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) =>
      resolve({ code: error?.code ?? (error ? error.signal : 0), output: stdout + stderr }),
    );
  });
}
