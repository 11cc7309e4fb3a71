// Makes docs/images/console-*.png: the console over a store in which an hour has passed, and its provider was sick for
// some minutes of it. Takes about a minute: npm run pictures
import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import os, { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { reportActivity, serveAdmin } from "../../src/admin/admin.ts";
import { systemRuntime } from "../../src/engine/runtime.ts";
import { startBrowser } from "../../test/support/browser.ts";
import { liveThroughAnHour } from "./history.ts";
import { withPalette } from "./palette-png.ts";
import { openShop, theOne } from "./shop.ts";

const folder = mkdtempSync(join(tmpdir(), "latchkey-pictures-"));
const file = join(folder, "shop.db");
const root = fileURLToPath(new URL("../../", import.meta.url));
const token = "only-for-these-pictures";
const bytesMax = 150_000; // What a picture may weigh in a repository.

execFileSync(process.execPath, ["scripts/build-pages.js"], { cwd: root });
console.log("An hour passes.");
await liveThroughAnHour(file);

os.hostname = () => "pay-2";
syncBuiltinESMExports();
const shop = openShop(file, { runtime: systemRuntime, clock: Date.now });
reportActivity(shop.latchkey, { role: "api" });
const trading = setInterval(() => void shop.trade(), 500);
const others = await Promise.all([startProcess("api", "pay-1"), startProcess("workers", "jobs-1")]);
const admin = await serveAdmin(shop.latchkey, { port: 0, operators: [{ name: "ada", token }] });
const browser = await startBrowser();
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, locale: "en-GB" });
  await page.goto(`${admin.url}/`);
  await page.getByLabel("Operator token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  console.log("The pictures wait for live events, and for every worker to have done something.");
  await page.getByRole("list", { name: "Live events" }).getByRole("listitem").nth(14).waitFor();
  await page.getByRole("row", { name: /relay.*delivered/ }).waitFor();
  await take(page, "overview");
  await page.emulateMedia({ colorScheme: "dark" });
  await take(page, "overview-dark");
  await page.emulateMedia({ colorScheme: "light" });

  await page.goto(`${admin.url}/#/unknown`);
  await page.getByRole("button", { name: "It was executed…" }).waitFor();
  await take(page, "unknown");

  await page.goto(`${admin.url}/#/dead-letters`);
  await page.getByText("Payload", { exact: true }).nth(1).click();
  await take(page, "dead-letters");

  // Somebody settles one, and its client retries: there is something to tell.
  const [scope, key] = [theOne.headers["x-account"], theOne.headers["idempotency-key"]];
  await shop.payTheOne({ isLost: false });
  await page.goto(`${admin.url}/#/record?scope=${scope}&key=${key}`);
  await page.getByRole("button", { name: "It was not executed…" }).click();
  await page.getByLabel("How is it known?").fill("the provider's export of today has no such charge");
  await page.getByRole("button", { name: "It may be tried again" }).click();
  await page.getByText("Settled").waitFor();
  await page.getByRole("button", { name: "Close this message" }).click();
  for (let turn = 0; turn < 4; turn++) await shop.payTheOne({ isLost: false });
  await page.getByText("answered with the stored answer").waitFor();
  await take(page, "record");

  // The minutes in which the provider was sick have records of every kind.
  const [from, to] = [31, 26].map((minutes) => new Date(Date.now() - minutes * 60_000).toISOString());
  await page.goto(`${admin.url}/#/records?from=${from}&to=${to}`);
  await page.getByRole("row").nth(20).waitFor();
  await take(page, "records");
} finally {
  clearInterval(trading);
  await browser.close();
  for (const child of others) child.kill("SIGKILL");
  await admin.close();
  await shop.latchkey.close({ drainMs: 1_000 });
  rmSync(folder, { recursive: true, force: true });
}
process.exit(process.exitCode ?? 0);

async function startProcess(role: string, host: string) {
  const child = fork(fileURLToPath(new URL("process.ts", import.meta.url)), [file, role, host], {
    execArgv: ["--import", "tsx"],
  });
  await once(child, "message");
  return child;
}

async function take(page: Page, name: string): Promise<void> {
  // The mouse would point at something, and a picture is taken between two drawings.
  await page.mouse.move(0, 0);
  await page.waitForTimeout(400);
  const path = join(root, `docs/images/console-${name}.png`);
  const picture = withPalette(await page.screenshot());
  await writeFile(path, picture);
  const { length: size } = picture;
  console.log(`${name}: ${Math.ceil(size / 1024)} KiB`);
  if (size > bytesMax) {
    console.error(`console-${name}.png is larger than ${bytesMax} bytes.`);
    process.exitCode = 1;
  }
}
