// Makes docs/images/playground-*.png: fifty taps at once, with Latchkey and without. Takes some seconds:
// npm run pictures:playground
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { startDemo } from "../src/demo/demo.ts";
import { startBrowser } from "../test/support/browser.ts";
import { withPalette } from "./console-pictures/palette-png.ts";

const path = (name: string) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const bytesMax = 150_000; // What a picture may weigh in a repository.

execFileSync(process.execPath, [path("scripts/build-pages.js")]);
const demo = await startDemo({ port: 0 });
const browser = await startBrowser();
try {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, locale: "en-GB" });
  await page.goto(demo.url);
  // The first request of a process is slower than any other, and not what the pictures are about.
  await page.getByRole("button", { name: "Pay" }).click();
  await page.getByRole("button", { name: "The same with Latchkey off" }).click({ timeout: 30_000 });
  await page
    .getByRole("button", { name: "The same with Latchkey on" })
    .click({ trial: true, timeout: 30_000 });
  await page.getByRole("button", { name: "Reset" }).click();

  // Latchkey is still off.
  await page.getByRole("radio", { name: /Fifty taps/ }).check();
  await page.getByRole("button", { name: "Pay" }).click();
  await page
    .getByRole("button", { name: "The same with Latchkey on" })
    .click({ trial: true, timeout: 60_000 });
  await take("off");
  await page.getByRole("button", { name: "The same with Latchkey on" }).click();
  await page
    .getByRole("button", { name: "The same with Latchkey off" })
    .click({ trial: true, timeout: 60_000 });
  await take("on");

  async function take(name: string): Promise<void> {
    const file = path(`docs/images/playground-${name}.png`);
    await page.mouse.move(0, 0);
    await page.evaluate("scrollTo(0, 0)");
    const picture = withPalette(await page.screenshot());
    if (picture.byteLength > bytesMax) throw new Error(`${file} would be larger than ${bytesMax} bytes`);
    writeFileSync(file, picture);
    console.log(`${name}: ${picture.byteLength} bytes`);
  }
} finally {
  await browser.close();
  await demo.close();
}
