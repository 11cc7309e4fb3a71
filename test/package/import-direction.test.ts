import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));

const forbidden = [
  ["core", "../engine/engine.ts"],
  ["core", "../latchkey.ts"],
  ["engine", "../http/gate.ts"],
  ["engine", "../stores/memory/store.ts"],
  ["stores/memory", "../../engine/engine.ts"],
  ["operation", "../http/gate.ts"],
  ["http", "../adapters/express.ts"],
  ["http", "../stores/sqlite/store.ts"],
  ["adapters", "../stores/memory/store.ts"],
  ["testing", "../stores/memory/store.ts"],
  ["workers", "../stores/memory/store.ts"],
  ["workers", "../adapters/express.ts"],
  ["http", "../workers/workers.ts"],
  ["engine", "../operation/operation.ts"],
  ["engine", "../observe/prometheus.ts"],
  ["http", "../observe/prometheus.ts"],
  ["workers", "../observe/prometheus.ts"],
  ["observe", "../workers/workers.ts"],
  ["observe", "../stores/memory/store.ts"],
  ["privacy", "../engine/engine.ts"],
  ["privacy", "../stores/memory/store.ts"],
  ["core", "../privacy/key-ring.ts"],
  ["engine", "../privacy/key-ring.ts"],
  ["http", "../admin/views.ts"],
  ["workers", "../gateway/gateway.ts"],
  ["admin", "../stores/memory/store.ts"],
  ["admin", "../gateway/gateway.ts"],
  ["gateway", "../cli/main.ts"],
  ["console", "../latchkey.ts"],
  ["demo", "../cli/main.ts"],
  ["conformance", "../core/key.ts"],
  ["cli", "../testing/index.ts"],
] as const;
const allowed = [
  ["adapters", "../http/gate.ts"],
  ["http", "../engine/engine.ts"],
  ["workers", "../http/stored-request.ts"],
  ["stores/memory", "../../core/store.ts"],
  ["observe", "../engine/engine.ts"],
  ["observe", "../http/token.ts"],
  ["privacy", "../core/store.ts"],
  ["admin", "../http/token.ts"],
  ["gateway", "../admin/admin.ts"],
  ["console", "../admin/views.ts"],
  ["cli", "../gateway/gateway.ts"],
] as const;

/** The linter with our configuration, on a tree in which each file breaks, or keeps, one rule. */
describe("imports point inward, and the check that says so really looks", () => {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-imports-"));
  let output = "";

  beforeAll(() => {
    cpSync(join(root, "biome.json"), join(folder, "biome.json"));
    for (const [index, [from, imported]] of [...forbidden, ...allowed].entries()) {
      const path = join(folder, "src", from, `planted-${index}.ts`);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, `import "${imported}";\n`);
    }
    const biome = spawnSync(
      join(root, "node_modules/.bin/biome"),
      ["lint", "--vcs-enabled=false", "--max-diagnostics=200", "src"],
      {
        cwd: folder,
        encoding: "utf8",
      },
    );
    output = biome.stdout + biome.stderr;
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it.each(forbidden.map((rule, index) => [...rule, index] as const))(
    "src/%s may not import %s",
    (from, _imported, index) => {
      expect(output).toContain(`src/${from}/planted-${index}.ts:1:8 lint/style/noRestrictedImports`);
    },
  );

  it.each(allowed.map((rule, index) => [...rule, index] as const))(
    "src/%s may import %s",
    (from, _imported, index) => {
      expect(output).not.toContain(`src/${from}/planted-${forbidden.length + index}.ts`);
    },
  );
});
