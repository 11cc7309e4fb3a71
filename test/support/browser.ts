import { existsSync } from "node:fs";
import chromium from "@sparticuz/chromium";
import { type Browser, chromium as playwright } from "playwright-core";

/**
 * A real Chromium, without a window: the one that LATCHKEY_TEST_CHROMIUM names, the machine's own, or the one that npm
 * has brought along.
 */
export async function startBrowser(): Promise<Browser> {
  const executablePath =
    process.env.LATCHKEY_TEST_CHROMIUM ?? systemPaths.find(existsSync) ?? (await chromium.executablePath());
  try {
    return await playwright.launch({
      executablePath,
      headless: true,
      args: [
        "--no-sandbox", // Which cannot be had as root, and the pages are our own.
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
      ],
    });
  } catch (error) {
    throw new Error(
      "No Chromium could be started. Install one (Debian: apt install chromium), or name one in LATCHKEY_TEST_CHROMIUM.",
      { cause: error },
    );
  }
}

const systemPaths = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
