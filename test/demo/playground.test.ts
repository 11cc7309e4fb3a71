import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type RunningDemo, startDemo } from "../../src/demo/demo.ts";
import type { ScenarioId } from "../../src/demo/scenarios.ts";
import { startBrowser } from "../support/browser.ts";
import { type WatchedPage, watchedPage } from "../support/watched-page.ts";
import { playgroundView } from "./playground-view.ts";

// A machine that is busy with something else takes its time to start processes.
describe("the playground, in a browser", { timeout: 60_000 }, () => {
  let demo: RunningDemo;
  let browser: Browser;
  let watched: WatchedPage;
  let page: Page;

  beforeAll(async () => {
    const root = fileURLToPath(new URL("../../", import.meta.url));
    execFileSync(process.execPath, ["scripts/build-pages.js"], { cwd: root });
    [demo, browser] = await Promise.all([startDemo({ port: 0 }), startBrowser()]);
  }, 60_000);
  afterAll(async () => {
    await browser?.close();
    await demo?.close();
  });
  beforeEach(async () => {
    // Requests that break or are refused are what the playground is about.
    watched = await watchedPage(browser, { origin: demo.url, mayFail: (url) => url.includes("/orders/") });
    page = watched.page;
    await page.goto(demo.url);
  });
  afterEach(async () => {
    await watched.close();
    expect(watched.complaints).toEqual([]);
  });

  const choose = (scenario: ScenarioId) => page.locator(`input[value="${scenario}"]`).check();
  const pay = () => page.getByRole("button", { name: /^Pay €/ }).click();
  const verdict = () => page.locator(".verdict .big").textContent();
  const compare = (state: "on" | "off") =>
    page.getByRole("button", { name: `The same with Latchkey ${state}` });

  /** Waits until the page's client has its answers; answers with what the provider and the network have seen. */
  async function settled(state: "on" | "off") {
    await page.locator(".verdict", { hasText: `Latchkey ${state}` }).waitFor();
    const again = compare(state === "on" ? "off" : "on");
    await expect.poll(() => again.isEnabled(), { timeout: 50_000, interval: 50 }).toBe(true);
    const { payments, ...rest } = await playgroundView(demo.url);
    const payment = payments.at(-1);
    if (payment === undefined) throw new Error("there is no payment");
    return { ...payment, ...rest };
  }

  /** Pays with Latchkey, and then the same without. */
  async function bothWays(scenario: ScenarioId) {
    await choose(scenario);
    await pay();
    const on = await settled("on");
    const saidOn = await verdict();
    await compare("off").click();
    const off = await settled("off");
    return { on, saidOn, off, saidOff: await verdict() };
  }

  it("fifty taps at once charge once, and without Latchkey fifty times", async () => {
    const { on, saidOn, off, saidOff } = await bothWays("fifty-taps");
    expect(on).toMatchObject({ isProtected: true, charges: 1, charged: 2_000 });
    expect(on.requests).toBeGreaterThanOrEqual(50);
    expect(saidOn).toBe(`Charged once: €20.00 for ${on.requests} requests`);
    // More, if the machine was so slow that the app tried again.
    expect(off.isProtected).toBe(false);
    expect(off.charges).toBeGreaterThanOrEqual(50);
    expect(saidOff).toMatch(/^Charged \d{2,} times: €\d{4,}\.00 for \d+ requests$/);
    expect(await page.locator(".ledger tbody tr").count()).toBeGreaterThanOrEqual(50);
    expect(await page.locator(".picture .coin").count()).toBeGreaterThanOrEqual(50);
  });

  it("whoever presses Pay fifty times pays once", async () => {
    await choose("nothing");
    for (let press = 1; press <= 50; press += 1) await pay();
    const { requests, charges, entries } = await settled("on");
    expect(charges).toBe(1);
    expect(requests).toBeGreaterThanOrEqual(50);
    const taps = new Set(entries.map((entry) => (entry.kind === "request-sent" ? entry.tap : 0)));
    expect(taps).toContain(50);
    expect(await page.locator(".ledger tbody tr").count()).toBe(1);
    await page.getByText(/^Paid \(ch_\d+\)/).waitFor();

    await page.getByRole("button", { name: "New purchase" }).click();
    await pay();
    expect((await settled("on")).charges).toBe(1);
    expect((await playgroundView(demo.url)).payments.at(-2)?.charges).toBe(1);
  });

  it("an answer that gets lost is answered again, and without Latchkey charged again", async () => {
    const { on, off } = await bothWays("response-lost");
    const ends = on.entries.filter((entry) => entry.kind === "request-ended").map(({ end }) => end);
    expect(ends).toContainEqual({ kind: "lost", status: 201 });
    expect(ends.at(-1)).toMatchObject({ kind: "answered", status: 201, isReplay: true });
    expect(on).toMatchObject({ charges: 1, charged: 2_000 });
    expect(off.charges).toBeGreaterThanOrEqual(2);
    await page.getByText(/€\d+\.00 too much/).waitFor();
  });

  it("a server that is killed after the charge is replaced, asks the provider, and has charged once", async () => {
    const { process: before } = await playgroundView(demo.url);
    const { on, off } = await bothWays("server-killed");
    expect(on.process.pid).not.toBe(before.pid);
    expect(on.process.restarts).toBe(before.restarts + 1);
    expect(on.entries).toContainEqual(
      expect.objectContaining({ kind: "process", what: "killed", pid: before.pid }),
    );
    expect(on.entries).toContainEqual(expect.objectContaining({ kind: "provider-asked", found: "charged" }));
    expect(on.entries).toContainEqual(
      expect.objectContaining({ kind: "latchkey", type: "reconciled", outcome: "completed" }),
    );
    expect(on.entries.filter(({ kind }) => kind === "handler-begun")).toHaveLength(1);
    expect(on.charges).toBe(1);
    expect(off.charges).toBeGreaterThanOrEqual(2);
    await page.getByText("is killed in the middle of its work").waitFor();
  });

  it("a slow provider is asked once, and without Latchkey again", async () => {
    const { on, off } = await bothWays("provider-slow");
    expect(on.charges).toBe(1);
    expect(on.entries).toContainEqual(
      expect.objectContaining({ kind: "request-ended", end: { kind: "given-up" } }),
    );
    expect(off.charges).toBeGreaterThan(1);
  });

  it("a key that comes with another amount is refused, and without Latchkey charged", async () => {
    await choose("key-reused");
    await pay();
    const on = await settled("on");
    expect(on).toMatchObject({ charges: 1, charged: 2_000 });
    await page.getByText(/^Refused \(422\)/).waitFor();
    await compare("off").click();
    expect((await settled("off")).charged).toBeGreaterThanOrEqual(4_500);
  });

  it("a provider that was down leaves the key free for the try that goes through", async () => {
    const { on, off } = await bothWays("provider-down");
    expect(on.charges).toBe(1);
    expect(on.entries.filter(({ kind }) => kind === "handler-begun")).toHaveLength(3);
    const ends = on.entries.filter((entry) => entry.kind === "latchkey" && entry.type === "settled");
    expect(ends.map((entry) => "outcome" in entry && entry.outcome)).toEqual([
      "failed_retryable",
      "failed_retryable",
      "completed",
    ]);
    expect(off.requests).toBeGreaterThanOrEqual(3);
  });

  it("needs no mouse", async () => {
    await page.getByRole("switch").focus();
    await page.keyboard.press("Space");
    expect(await page.getByRole("switch").getAttribute("aria-checked")).toBe("false");
    await page.keyboard.press("Tab");
    await page.keyboard.press("ArrowUp");
    expect(await page.locator("input[value=nothing]").isChecked()).toBe(true);
    await page.keyboard.press("ArrowDown");
    expect(await page.locator("input[value=response-lost]").isChecked()).toBe(true);
    await page.keyboard.press("Tab");
    await page.keyboard.type("7.50");
    await page.keyboard.press("Enter");
    const paid = await settled("off");
    expect(paid.amount).toBe(750);
    expect(paid.charges).toBeGreaterThanOrEqual(2);
    await page.locator(":focus-visible").waitFor();
  });

  it("opens the console on the record of the payment, signed in", async () => {
    await choose("response-lost");
    await pay();
    const { key } = await settled("on");
    const [opened] = await Promise.all([
      page.waitForEvent("popup"),
      page.getByRole("link", { name: "This record in the console" }).click(),
    ]);
    await opened.getByText(String(key)).first().waitFor();
    await opened.getByText("payments.create").first().waitFor();
    expect(await opened.getByLabel("Operator token").count()).toBe(0);
  });

  it("shows the latest payment again after a reload, and begins anew after a reset", async () => {
    await choose("nothing");
    await pay();
    const { order } = await settled("on");
    await page.reload();
    await page.getByText(`Purchase ${order} · Nothing goes wrong`).waitFor();
    await page.getByRole("button", { name: "Reset" }).click();
    await page.getByText("What does a customer pay when something breaks?").waitFor();
    expect((await playgroundView(demo.url)).payments).toEqual([]);
  });

  it.each(["light", "dark"] as const)("fits a phone (%s)", async (colorScheme) => {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width: 390, height: 844 });
    await choose("nothing");
    await pay();
    await settled("on");
    const width = await page.evaluate("document.documentElement.scrollWidth");
    const background = await page.evaluate("getComputedStyle(document.body).backgroundColor");
    expect(width).toBe(390);
    expect(background).toBe(colorScheme === "light" ? "rgb(244, 245, 248)" : "rgb(16, 19, 26)");
  });
});
