import { expect, it } from "vitest";
import { NotDeliverableError, relay } from "../../src/workers/workers.ts";
import { gate, openBench, useBrowser } from "./bench.ts";

useBrowser();

it("busting a key asks for a reason, and the next request is executed", async () => {
  const bench = await openBench();
  const { page } = bench;
  const first = await (await bench.pay("wrong-price")).json();
  await bench.open("record?scope=acme&key=wrong-price");
  await page.getByRole("button", { name: "Bust this key…" }).click();
  const dialog = page.getByRole("dialog", { name: "Bust this key?" });
  await dialog.getByText("The next request with this key is executed again").waitFor();
  // Without a reason nothing happens.
  await dialog.getByRole("button", { name: "Bust it" }).click();
  expect(await dialog.isVisible()).toBe(true);
  await dialog.getByLabel("Reason").fill("answered with a wrong price");
  await dialog.getByRole("button", { name: "Bust it" }).click();
  await page.getByRole("status").getByText("Busted").waitFor();
  await page.getByText("expired").first().waitFor();

  const second = await bench.pay("wrong-price");
  expect(second.headers.get("idempotency-replayed")).toBe(null);
  expect(await second.json()).not.toEqual(first);
  expect(bench.executions("wrong-price")).toBe(2);
  await page.getByRole("list", { name: "Timeline" }).getByText("answered with a wrong price").waitFor();
  await page.getByRole("list", { name: "Timeline" }).getByText("ada").first().waitFor();
});

it("a key that is being executed cannot be busted, and the refusal says what to do", async () => {
  const bench = await openBench();
  const { page, latchkey } = bench;
  bench.expectRefusalOf("record/bust");
  const held = gate();
  const running = latchkey.run({ tenant: "acme", key: "slow" }, () => held.opened);
  await bench.open("record?scope=acme&key=slow");
  await page.getByText("Being executed.").waitFor();
  await page.getByRole("button", { name: "Bust this key…" }).click();
  await page.getByLabel("Reason").fill("it takes so long");
  await page.getByRole("button", { name: "Bust it" }).click();
  await page.getByRole("alert").getByText("it is being executed: wait for its outcome").waitFor();
  await page.keyboard.press("Escape");
  held.open();
  await running;
  // The page looks again by itself.
  await page.getByText("The outcome is known, and every retry gets it.").waitFor();
});

it("a dead letter is requeued, one or those that are selected, and delivered", async () => {
  const bench = await openBench();
  const { page, latchkey } = bench;
  for (const order of [1, 2, 3]) {
    await latchkey.run({ tenant: "acme", key: `order-${order}` }, (op) =>
      op.atomic("booked", (tx) => op.enqueue(tx, "receipt.send", { order })),
    );
  }
  const delivered: unknown[] = [];
  let isMailDown = true;
  const mail = relay(latchkey as never, {
    async deliver({ payload }) {
      if (isMailDown) throw new NotDeliverableError("the mailbox does not exist");
      delivered.push(payload);
    },
  });
  expect(await mail.runOnce()).toMatchObject({ dead: 3 });
  isMailDown = false;
  await bench.open("overview");
  await page
    .getByRole("link", { name: /Dead letters\s*3/ })
    .first()
    .click();

  const letters = page
    .getByRole("table", { name: "Dead letters" })
    .getByRole("row")
    .filter({ hasText: "receipt.send" });
  await expect.poll(() => letters.count()).toBe(3);
  await letters.first().getByText("the mailbox does not exist").waitFor();
  await letters.first().getByText("Payload").click();
  await letters.first().getByText('"order": 1').waitFor();

  await letters
    .first()
    .getByRole("button", { name: /Requeue/ })
    .click();
  await page.getByRole("dialog").getByRole("button", { name: "Requeue" }).click();
  await page.getByRole("status").getByText("1 message waits for delivery again").waitFor();
  await expect.poll(() => letters.count()).toBe(2);
  expect(await mail.runOnce()).toMatchObject({ delivered: 1 });
  expect(delivered).toEqual([{ order: 1 }]);

  await page.getByLabel("Select all on this page").check();
  await page.getByRole("button", { name: "Requeue selected (2)…" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Requeue" }).click();
  await page.getByText("Every message was delivered, or still may be.").waitFor();
  expect(await mail.runOnce()).toMatchObject({ delivered: 2 });

  await page.goto(`${bench.url}/#/audit`);
  const entries = page.getByRole("row").filter({ hasText: "requeued" });
  await expect.poll(() => entries.filter({ hasText: "ada" }).count()).toBe(3);
});
