import { execFile, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, inject, it, onTestFinished } from "vitest";
import { newerNode, newerNodes } from "../support/newer-node.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const vitest = join(dirname(createRequire(import.meta.url).resolve("vitest/package.json")), "vitest.mjs");
const majors = Object.keys(newerNodes).map(Number) as (keyof typeof newerNodes)[];

describe.each(majors)("on Node %i", (major) => {
  it("the core, the engine, HTTP, the adapters, operations and the SQLite store do what they do, with Node's own SQLite", async () => {
    const node = await newerNode(major);
    const { code, output } = await ran(node, [vitest, "run", "--config", "test/newer-node/vitest.config.ts"]);
    expect(code, output).toBe(0);
    // Not that nothing ran.
    expect(Number(/ Tests +(\d+) passed/.exec(output)?.[1]), output).toBeGreaterThan(3_000);
  }, 600_000);

  it.each([
    [["node:sqlite"], /database is locked/],
    [["libsql"], /database is locked/],
    [["node:sqlite", "libsql"], /has loaded node:sqlite and libsql/],
  ])(
    "an application with %j has one SQLite, which sees all locks of the process",
    async (drivers, expected) => {
      const folder = mkdtempSync(join(tmpdir(), "latchkey-sqlites-"));
      const child = fork(join(root, "test/fixtures/two-sqlites.ts"), [join(folder, "app.db"), ...drivers], {
        execPath: await newerNode(major),
        execArgv: ["--import", "tsx"],
        env: ownEnvironment(),
        stdio: ["ignore", "ignore", "inherit", "ipc"],
      });
      onTestFinished(() => {
        child.kill("SIGKILL");
        rmSync(folder, { recursive: true });
      });
      const [told] = await once(child, "message");
      expect(told).toMatch(expected);
    },
    60_000,
  );
});

/** What this run tells its own workers is not for others. */
function ownEnvironment(): NodeJS.ProcessEnv {
  const theirs = /^VITEST|^NODE_OPTIONS$|^NODE_V8_COVERAGE$/;
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !theirs.test(name)));
}

function ran(program: string, args: readonly string[]): Promise<{ code: unknown; output: string }> {
  const env = { ...ownEnvironment(), NO_COLOR: "1", LATCHKEY_TEST_POSTGRES_URL: inject("postgresUrl") };
  return new Promise((resolve) => {
    const options = { cwd: root, env, maxBuffer: 64 * 1024 * 1024, timeout: 580_000 };
    const child = execFile(program, args, options, (error, stdout, stderr) =>
      resolve({
        code: error === null ? 0 : (error.code ?? error.signal),
        output: `${stdout}${stderr}${error ?? ""}`,
      }),
    );
    onTestFinished(() => void child.kill("SIGKILL"));
  });
}
