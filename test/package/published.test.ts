import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  exports: Record<string, unknown>;
  dependencies: Record<string, string>;
  peerDependencies: Record<string, string>;
  peerDependenciesMeta: Record<string, { optional: boolean }>;
};

/** What a user gets who installs the package, and nothing else. */
describe("the published package", () => {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-package-"));
  let files: string[] = [];

  beforeAll(() => {
    execFileSync(process.execPath, ["scripts/build.js"], { cwd: root });
    const packed = execFileSync("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", folder], {
      cwd: root,
      encoding: "utf8",
    });
    const report = JSON.parse(packed) as { filename: string }[] | Record<string, { filename: string }>;
    const [{ filename } = { filename: "" }] = Object.values(report);
    const target = join(folder, "node_modules", "latchkey");
    mkdirSync(target, { recursive: true });
    execFileSync("tar", ["-xzf", join(folder, filename), "-C", target, "--strip-components=1"]);
    files = execFileSync("tar", ["-tzf", join(folder, filename)], { encoding: "utf8" }).split("\n");
  }, 120_000);
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const run = (code: string) =>
    execFileSync(process.execPath, ["--input-type=module", "-e", code], {
      cwd: folder,
      encoding: "utf8",
    }).trim();

  it("depends on what the gateway needs and on nothing else, and every peer is optional", () => {
    expect(Object.keys(manifest.dependencies)).toEqual(["jose", "undici", "valibot", "yaml"]);
    expect(Object.keys(manifest.peerDependenciesMeta)).toEqual(Object.keys(manifest.peerDependencies));
  });

  // Nothing is installed beside the package here, so whatever can be imported below needs none of its dependencies.
  const needingTheirPeer = ["./package.json", "./dynamodb", "./opentelemetry", "./admin"];

  it.each(Object.keys(manifest.exports).filter((name) => !needingTheirPeer.includes(name)))(
    "%s can be imported without any driver, framework or dependency installed",
    (name) => {
      const specifier = `latchkey${name.slice(1)}`;
      expect(run(`console.log(Object.keys(await import("${specifier}")).length > 0)`)).toBe("true");
    },
  );

  it("latchkey/dynamodb asks for the SDK, whose commands it sends, by name", () => {
    const code = `import("latchkey/dynamodb").catch((error) => console.log(error.message))`;
    expect(run(code)).toMatch(/Cannot find package '@aws-sdk\/client-dynamodb'/);
  });

  it("latchkey/opentelemetry asks for OpenTelemetry's API, and for no SDK", () => {
    const code = `import("latchkey/opentelemetry").catch((error) => console.log(error.message))`;
    expect(run(code)).toMatch(/Cannot find package '@opentelemetry\/api'/);
  });

  it.each([
    ["postgres://localhost/db", "pg"],
    ["mysql://localhost/db", "mysql2"],
    ["redis://localhost", "ioredis"],
    ["redis-cluster://localhost", "ioredis"],
    ["dynamodb://eu-west-1/table", "@aws-sdk/client-dynamodb"],
  ])("a store by %s says that %s has to be installed", (url, driver) => {
    const code = `import { openStore } from "latchkey/stores";
      await openStore("${url}").catch((error) => console.log(error.code, error.message));`;
    expect(run(code)).toMatch(new RegExp(`^config .*which is not installed: run \`npm install ${driver}\``));
  });

  it("can be required from CommonJS", () => {
    const code = `import { createRequire } from "node:module";
      console.log(typeof createRequire(import.meta.url)("latchkey").createLatchkey)`;
    expect(run(code)).toBe("function");
  });

  it("works from its own files", () => {
    const code = `
      import { createLatchkey } from "latchkey";
      import { idempotent } from "latchkey/fetch";
      import { memoryStore } from "latchkey/memory";
      let runs = 0;
      const handler = idempotent(createLatchkey({ store: memoryStore(), tenant: "single" }))(() => Response.json({ runs: ++runs }));
      const call = () => handler(new Request("http://x/", { method: "POST", headers: { "idempotency-key": "k" } }));
      await call();
      console.log((await call()).headers.get("idempotency-replayed"), runs);`;
    expect(run(code)).toBe("true 1");
  });

  it("says what to install when SQLite has no driver", () => {
    if (process.versions.node.startsWith("20.")) {
      const code = `import { sqliteStore } from "latchkey/sqlite";
        try { sqliteStore("./x.db"); } catch (error) { console.log(error.code, error.message) }`;
      expect(run(code)).toMatch(/^config no SQLite driver could be loaded: run `npm install libsql`/);
    }
  });

  it("carries its migrations and documents, and no sources or tests", () => {
    expect(files).toContain("package/dist/stores/postgres/migrations/0001_records.sql");
    expect(files).toContain("package/dist/stores/sqlite/migrations/0001_records.sql");
    expect(files).toContain("package/docs/problems.md");
    expect(files).toContain("package/LICENSE");
    expect(
      files.filter((file) => /^package\/(src|test|benchmarks|examples)\/|tsbuildinfo/.test(file)),
    ).toEqual([]);
  });
});
