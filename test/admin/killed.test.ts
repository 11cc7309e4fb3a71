import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { ActivityReader } from "../../src/admin/activity/reader.ts";
import { Administration, reportActivity } from "../../src/admin/admin.ts";
import { createLatchkey, type Latchkey } from "../../src/index.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { atTheEnd } from "./admin-client.ts";

it("a process that was killed shows as not alive, and what it did still adds up with the others", async () => {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-killed-"));
  atTheEnd(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, "latchkey.db");
  const latchkey = createLatchkey({ store: sqliteStore(path), tenant: "single" }) as Latchkey;
  atTheEnd(() => latchkey.close());
  const reporting = reportActivity(latchkey, { role: "api", intervalMs: 100 });
  atTheEnd(() => reporting.stop());
  const fixture = fileURLToPath(new URL("./fixtures/reporting-process.ts", import.meta.url));
  const child = fork(fixture, [path, "5"], { execArgv: ["--import", "tsx"] });
  atTheEnd(() => child.kill("SIGKILL"));
  await once(child, "message");
  await latchkey.run({ tenant: "acme", key: "here" }, () => "done");
  const administration = new Administration(latchkey);
  const executed = async () => {
    const { series } = await administration.activity({ windowMs: 3_600_000, stepMs: 10_000 });
    return series.executed.reduce((sum, n) => sum + n, 0);
  };
  await expect.poll(executed, { timeout: 10_000 }).toBe(6);
  const reader = new ActivityReader(latchkey);
  const alive = async () => (await reader.processes()).map(({ role, isAlive }) => [role, isAlive]);
  expect(await alive()).toEqual([
    ["api", true],
    ["killed", true],
  ]);
  child.kill("SIGKILL");
  await once(child, "exit");
  await expect.poll(alive, { timeout: 10_000 }).toEqual([
    ["api", true],
    ["killed", false],
  ]);
  expect(await executed()).toBe(6);
  expect((await reader.processes())[1]).toMatchObject({ pid: child.pid });
}, 60_000);
