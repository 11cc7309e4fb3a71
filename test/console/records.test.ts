import { expect, it } from "vitest";
import { gate, openBench, useBrowser } from "./bench.ts";

useBrowser();

it("pages through two hundred records, fifty at a time, and back", async () => {
  const bench = await openBench();
  const { page, latchkey } = bench;
  const keys = Array.from({ length: 200 }, (_, index) => `order-${String(index).padStart(3, "0")}`);
  await Promise.all(keys.map((key) => latchkey.run({ tenant: "acme", key }, () => ({ key }))));
  await bench.open("records");
  const links = page.getByRole("table", { name: "Records" }).getByRole("link");
  const seen: string[][] = [];
  for (let turn = 0; turn < 4; turn++) {
    await page.getByRole("status").getByText("50 records on this page").waitFor();
    seen.push(await links.allInnerTexts());
    if (turn === 3) break;
    await page.getByRole("link", { name: "Older →" }).click();
    await expect.poll(() => links.first().textContent()).not.toBe(seen.at(-1)?.[0]);
  }
  expect(seen.flat().toSorted()).toEqual(keys);
  await expect.poll(() => page.getByRole("link", { name: "Older →" }).count()).toBe(0);

  await page.getByRole("button", { name: "← Back" }).click();
  await expect.poll(() => links.first().textContent()).toBe(seen[2]?.[0]);
  await page.getByRole("link", { name: "Latest" }).click();
  await expect.poll(() => links.first().textContent()).toBe(seen[0]?.[0]);
});

it("filters by state, tenant, route and time, all in an address that shows somebody else the same", async () => {
  const bench = await openBench();
  const { page, latchkey } = bench;
  await bench.pay("paid-acme");
  await bench.pay("paid-globex", { tenant: "globex" });
  await bench.pay("lost-globex", { tenant: "globex", isLost: true });
  await latchkey.run({ tenant: "globex", key: "job", policy: { name: "jobs" } }, () => 1);
  await bench.open("records");
  const shown = () => page.getByRole("table", { name: "Records" }).getByRole("link").allInnerTexts();
  await expect.poll(async () => (await shown()).length).toBe(4);

  const filters = page.getByRole("form", { name: "Filters" });
  await filters.getByLabel("State").selectOption("unknown");
  await expect.poll(shown).toEqual(["lost-globex"]);
  await filters.getByLabel("State").selectOption("");
  await filters.getByLabel("Tenant").fill("globex");
  await filters.getByRole("button", { name: "Apply" }).click();
  await expect.poll(async () => (await shown()).toSorted()).toEqual(["job", "lost-globex", "paid-globex"]);
  await filters.getByLabel("Route").fill("jobs");
  await filters.getByRole("button", { name: "Apply" }).click();
  await expect.poll(shown).toEqual(["job"]);
  await filters.getByLabel("First reserved").selectOption("15m");
  await expect.poll(() => page.url()).toContain("last=15m");
  await expect.poll(shown).toEqual(["job"]);

  const address = page.url();
  expect(address).toContain("tenant=globex");
  const other = await page.context().newPage();
  await other.goto(address);
  await other.getByLabel("Operator token").fill("ada-0123456789abcdef");
  await other.getByRole("button", { name: "Sign in" }).click();
  const table = other.getByRole("table", { name: "Records" });
  await expect.poll(() => table.getByRole("link").allInnerTexts()).toEqual(["job"]);

  // Nothing was first reserved in the last century.
  await page.goto(`${bench.url}/#/records?from=1990-01-01T00:00:00.000Z&to=1999-01-01T00:00:00.000Z`);
  await page.getByText("No record is like that.").waitFor();
});

it("finds a key in whichever tenant used it", async () => {
  const bench = await openBench();
  const { page } = bench;
  await Promise.all(["acme", "globex", "initech"].map((tenant) => bench.pay("same-key", { tenant })));
  await bench.pay("another-key");
  await bench.open("overview");
  await page.keyboard.press("/");
  await page.keyboard.type("same-key");
  await page.keyboard.press("Enter");
  const rows = page.getByRole("table", { name: "Records" }).getByRole("row").filter({ hasText: "same-key" });
  await expect.poll(() => rows.count()).toBe(3);
  expect(await page.getByText("another-key").count()).toBe(0);
  await rows.filter({ hasText: "globex" }).getByRole("link").click();
  await page.getByRole("heading", { name: "same-key" }).waitFor();
  await page.getByText("201", { exact: true }).first().waitFor();
});

it("keeps looking when the store's pages are short or empty, and says so", async () => {
  const bench = await openBench();
  const { page, latchkey } = bench;
  await Promise.all(Array.from({ length: 12 }, (_, index) => bench.pay(`sparse-${index}`)));
  const list = latchkey.store.list.bind(latchkey.store);
  const held = gate();
  let calls = 0;
  // As a store that looks at no more than it can within a moment: every other page is empty, the others hold three.
  latchkey.store.list = async (query) => {
    if (query.state === "in_progress") return list(query);
    calls += 1;
    if (calls === 4) await held.opened;
    if (calls % 2 === 1) return { records: [], next: query.after ?? "the beginning", now: Date.now() };
    const after = query.after === "the beginning" ? undefined : query.after;
    return list({ ...query, after, limit: Math.min(query.limit, 3) });
  };
  await bench.open("records");
  await page.getByRole("status").getByText("Looking… 3 records so far, 3 pages looked through").waitFor();
  held.open();
  await page.getByRole("status").getByText("12 records on this page, and none after them").waitFor();
  expect(calls).toBeGreaterThan(7);
});

it("what a record holds is shown as text, whatever it is", async () => {
  const hostile = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
  const bench = await openBench();
  const { page, latchkey } = bench;
  await latchkey.run({ tenant: "acme", key: "hostile", policy: { name: hostile } }, () => ({ hostile }));
  await bench.open("record?scope=acme&key=hostile");
  await page.getByRole("region", { name: "Answer" }).getByText("onerror").waitFor();
  expect(await page.title()).toBe("Latchkey console");
  expect(await page.locator("main img, main script").count()).toBe(0);
});
