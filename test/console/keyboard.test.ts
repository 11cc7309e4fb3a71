import type { Page } from "playwright-core";
import { expect, it } from "vitest";
import { ada, openBench, useBrowser } from "./bench.ts";

useBrowser();

it("everything can be done by keyboard: sign in, find an unknown outcome, settle it", async () => {
  const bench = await openBench();
  const { page, latchkey } = bench;
  await bench.pay("by-hand", { isLost: true });
  await page.goto(`${bench.url}/`);
  await page.getByLabel("Operator token").waitFor();
  await expect.poll(() => focused(page)).toBe("INPUT");
  await page.keyboard.type(ada.token);
  await page.keyboard.press("Enter");
  await page.getByRole("navigation", { name: "Pages" }).waitFor();

  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
  // Keys that work elsewhere do not while a dialog is open.
  await page.keyboard.type("gr");
  await page.keyboard.press("Escape");
  await expect.poll(() => page.getByRole("dialog").count()).toBe(0);
  expect(page.url()).not.toContain("records");

  for (const [keys, heading] of [
    ["gr", "Records"],
    ["gd", "Dead letters"],
    ["ga", "Audit trail"],
    ["go", "Overview"],
    ["gu", "Unknown outcomes"],
  ] as const) {
    await page.keyboard.type(keys);
    await page.getByRole("heading", { level: 1, name: heading }).waitFor();
  }

  const verdict = page.getByRole("button", { name: "It was not executed…" });
  await verdict.waitFor();
  await tabTo(page, { text: "It was not executed…" });
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "It was not executed" });
  await dialog.waitFor();
  // The focus is in the dialog, and cannot leave it for what is behind.
  for (let turn = 0; turn < 6; turn++) {
    await page.keyboard.press("Tab");
    const isOutside = await page.evaluate(
      "document.activeElement !== document.body && document.activeElement.closest('dialog') === null",
    );
    expect(isOutside).toBe(false);
  }
  // Escape closes it, changes nothing, and the focus is where it was.
  const closed = await dialog.elementHandle();
  await page.keyboard.press("Escape");
  await expect.poll(() => dialog.count()).toBe(0);
  expect(await page.evaluate("document.activeElement.textContent")).toBe("It was not executed…");
  expect((await latchkey.inspect({ tenant: "acme", key: "by-hand" })).record?.state).toBe("unknown");

  await page.keyboard.press("Enter");
  await dialog.waitFor();
  // The browser may tell of the first one's end only now, and that does not close the second.
  await closed?.evaluate((element) => element.dispatchEvent(new Event("close")));
  await tabTo(page, { tag: "INPUT" });
  await page.keyboard.type("looked it up");
  await page.keyboard.press("Enter");
  await page.getByRole("status").getByText("Settled").waitFor();
  expect((await latchkey.inspect({ tenant: "acme", key: "by-hand" })).record?.state).toBe("failed_retryable");
});

it("what has the focus can be seen", async () => {
  const bench = await openBench();
  const { page } = bench;
  await bench.open("records");
  await page.getByRole("heading", { name: "Records" }).waitFor();
  for (let turn = 0; turn < 12; turn++) {
    await page.keyboard.press("Tab");
    const outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle");
    expect(outline).not.toBe("none");
  }
});

it("is dark where the system is, or where somebody says so", async () => {
  const bench = await openBench({ context: { colorScheme: "dark" } });
  const { page } = bench;
  await bench.open("overview");
  const lightness = async () => {
    const colour = await page.evaluate<string>("getComputedStyle(document.body).backgroundColor");
    const [red = 0, green = 0, blue = 0] = colour.match(/\d+/g)?.map(Number) ?? [];
    return (red + green + blue) / 3;
  };
  expect(await lightness()).toBeLessThan(60);
  await page.getByRole("button", { name: "Theme: auto. Change it" }).click();
  await expect.poll(lightness).toBeGreaterThan(200);
  await page.reload();
  await page.getByRole("button", { name: "Theme: light. Change it" }).click();
  await expect.poll(lightness).toBeLessThan(60);
  await page.getByRole("button", { name: "Theme: dark. Change it" }).waitFor();
});

it("fits on a phone: nothing is wider than it", async () => {
  const bench = await openBench({ context: { viewport: { width: 390, height: 844 } } });
  const { page } = bench;
  const long = "a-key-that-is-rather-long-0123456789-0123456789-0123456789";
  await bench.pay(long);
  await bench.pay("lost", { isLost: true });
  await bench.open("overview");
  for (const [at, heading] of [
    ["overview", "Overview"],
    ["records", "Records"],
    ["unknown", "Unknown outcomes"],
    ["dead-letters", "Dead letters"],
    ["audit", "Audit trail"],
    [`record?scope=acme&key=${long}`, long],
  ] as const) {
    await page.goto(`${bench.url}/#/${at}`);
    await page.getByRole("heading", { level: 1, name: heading }).waitFor();
    expect({ at, width: await page.evaluate("document.documentElement.scrollWidth") }).toEqual({
      at,
      width: 390,
    });
  }
});

function focused(page: Page): Promise<string> {
  return page.evaluate<string>("document.activeElement.tagName");
}

/** Goes on by Tab until the focus is on what has this text, or on an element of this kind. */
async function tabTo(page: Page, what: { readonly text: string } | { readonly tag: string }): Promise<void> {
  for (let turn = 0; turn < 60; turn++) {
    const is =
      "text" in what ? await page.evaluate("document.activeElement.textContent") : await focused(page);
    if (is === Object.values(what)[0]) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`Tab does not lead to ${Object.values(what)[0]}.`);
}
