import { expect, it } from "vitest";
import { reportActivity } from "../../src/admin/admin.ts";
import { sweeper } from "../../src/workers/workers.ts";
import { gate, openBench, useBrowser } from "./bench.ts";

useBrowser();

it("live events appear while requests run, and stay away while they are paused", async () => {
  const bench = await openBench();
  const { page } = bench;
  await bench.open("overview");
  await page.getByText("connected", { exact: true }).waitFor();
  const live = page.getByRole("list", { name: "Live events" });
  await bench.pay("watched");
  const about = live.getByRole("listitem").filter({ hasText: "watched" });
  await about.filter({ hasText: "reserved created" }).waitFor();
  await about.filter({ hasText: "settled completed" }).waitFor();
  await bench.pay("watched");
  await about.filter({ hasText: "reserved replay" }).waitFor();

  await page.getByRole("button", { name: "Pause" }).click();
  await bench.pay("unseen");
  await page.getByRole("button", { name: /Go on \([1-9]\d* missed\)/ }).waitFor();
  expect(await live.getByText("unseen").count()).toBe(0);
  await page.getByRole("button", { name: /Go on/ }).click();
  await bench.pay("seen-again");
  await live.getByText("seen-again").first().waitFor();

  await about.first().getByRole("link").click();
  await page.getByRole("heading", { name: "watched" }).waitFor();
});

it("a connection that is lost is said, what was shown stays, and it is made again", async () => {
  const bench = await openBench();
  const { page } = bench;
  await bench.open("overview");
  await page.getByText("connected", { exact: true }).waitFor();
  await bench.pay("before");
  const live = page.getByRole("list", { name: "Live events" });
  await live.getByText("before").first().waitFor();

  bench.cutNetwork();
  await page.getByText("connection lost, trying again…").waitFor();
  await page.getByRole("alert").getByText("The admin API cannot be reached.").first().waitFor();
  expect(await live.getByText("before").count()).toBeGreaterThan(0);

  bench.mendNetwork();
  await page.getByText("connected", { exact: true }).waitFor();
  await expect.poll(() => page.getByText("The admin API cannot be reached.").count()).toBe(0);
  await bench.pay("after");
  await live.getByText("after").first().waitFor();
});

it("holds no more than two hundred events", async () => {
  const bench = await openBench();
  const { page } = bench;
  await bench.open("overview");
  await page.getByText("connected", { exact: true }).waitFor();
  for (let turn = 0; turn < 4; turn++) {
    await Promise.all(Array.from({ length: 25 }, (_, index) => bench.pay(`many-${turn}-${index}`)));
  }
  const live = page.getByRole("list", { name: "Live events" });
  // What comes too fast for one listener is left out, so it is said until it is heard.
  const lastHeard = async () => {
    await bench.pay("the-last");
    return live.getByText("the-last").count();
  };
  await expect.poll(lastHeard, { timeout: 15_000, interval: 300 }).toBeGreaterThan(0);
  expect(await live.getByRole("listitem").count()).toBeLessThanOrEqual(200);
});

it("numbers, plots and processes show what runs, and lead to it", async () => {
  const bench = await openBench();
  const { page, latchkey } = bench;
  const reporting = reportActivity(latchkey, { role: "api", intervalMs: 500 });
  const worker = sweeper(latchkey as never);
  await worker.runOnce();
  const held = gate();
  const running = latchkey.run({ tenant: "acme", key: "still-running" }, () => held.opened);
  await bench.pay("lost", { isLost: true });
  for (let turn = 0; turn < 5; turn++) await bench.pay("paid");
  await bench.open("overview?window=15m");

  const now = page.getByRole("list", { name: "Right now" });
  await now.getByRole("link", { name: /Running now\s*1/ }).waitFor();
  await now.getByRole("link", { name: /Unknown outcomes\s*1/ }).waitFor();
  const answers = page.getByRole("figure", { name: "What requests came to" });
  await answers.getByRole("button", { name: /executed\s*3/ }).waitFor();
  await answers.getByRole("button", { name: /replayed\s*4/ }).waitFor();
  const outcomes = page.getByRole("figure", { name: "How executions ended" });
  await outcomes.getByRole("button", { name: /became unknown\s*1/ }).waitFor();
  const processes = page.getByRole("region", { name: "Processes and workers" }).first();
  await processes.getByRole("row", { name: /api .*alive/ }).waitFor();
  await processes.getByRole("row", { name: /sweeper/ }).waitFor();

  // A series can be hidden, and pointing at a moment says what came to what then.
  await answers.getByRole("button", { name: /executed/ }).click();
  expect(await answers.getByRole("button", { name: /executed/ }).getAttribute("aria-pressed")).toBe("false");
  await answers.locator(".u-over").hover({ position: { x: 300, y: 40 } });
  await answers.getByText(/\/s$/).first().waitFor();

  await now.getByRole("link", { name: /Running now/ }).click();
  const rows = page.getByRole("table", { name: "Records" }).getByRole("link");
  await expect.poll(() => rows.allInnerTexts()).toEqual(["still-running"]);
  held.open();
  await running;
  await reporting.stop();
});

it("an hour without requests is said, and not drawn as nothing", async () => {
  const bench = await openBench();
  await bench.open("overview");
  await bench.page.getByText("Nothing came in during this time.").first().waitFor();
});
