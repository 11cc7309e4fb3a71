import { expect, it } from "vitest";
import { type Bench, openBench, useBrowser } from "./bench.ts";

useBrowser();

it("a verdict is about the attempt that was looked at, whatever the page has heard of since", async () => {
  const bench = await openBench();
  const { page, latchkey } = bench;
  await bench.pay("lost-1", { isLost: true });
  await bench.open("record?scope=acme&key=lost-1");
  await page.getByRole("button", { name: "It was not executed…" }).click();
  const dialog = page.getByRole("dialog", { name: "It was not executed" });
  await dialog.getByText("executes it as attempt 2").waitFor();

  // Somebody else settles it between two looks of the page, and what is tried again becomes unknown, too.
  const of = { tenant: "acme", key: "lost-1" };
  await latchkey.resolve({ of, attempt: 1, verdict: { kind: "not-executed" }, by: "eve" });
  await bench.pay("lost-1", { isLost: true });
  expect((await latchkey.inspect(of)).record).toMatchObject({ state: "unknown", fence: 2 });
  await showsAttempt(page, 2);

  bench.expectRefusalOf("record/resolve");
  await dialog.getByLabel("How is it known?").fill("the provider has no charge of the first attempt");
  await dialog.getByRole("button", { name: "It may be tried again" }).click();
  await dialog.getByRole("alert").getByText("Another attempt is unknown by now").waitFor();
  expect((await latchkey.inspect(of)).record).toMatchObject({ state: "unknown", fence: 2 });
});

it("a bust takes away the answer that was looked at, and not that of a later attempt", async () => {
  const bench = await openBench();
  const { page, latchkey } = bench;
  await bench.pay("paid-1");
  await bench.open("record?scope=acme&key=paid-1");
  await page.getByRole("button", { name: "Bust this key…" }).click();
  const dialog = page.getByRole("dialog", { name: "Bust this key?" });
  await dialog.getByText("as attempt 2").waitFor();

  const of = { tenant: "acme", key: "paid-1" };
  await latchkey.bust({ of, by: "eve", reason: "the price was wrong" });
  await bench.pay("paid-1");
  await showsAttempt(page, 2);

  bench.expectRefusalOf("record/bust");
  await dialog.getByLabel("Reason").fill("the price was wrong");
  await dialog.getByRole("button", { name: "Bust it" }).click();
  await dialog.getByRole("alert").getByText("that of attempt 2 by now").waitFor();
  expect((await latchkey.inspect(of)).record).toMatchObject({ state: "completed", fence: 2 });
});

/** Behind the dialog the page goes on looking. */
function showsAttempt(page: Bench["page"], attempt: number): Promise<void> {
  const fact = page.getByText("attempt (fence)").locator("..");
  return fact.getByText(String(attempt), { exact: true }).waitFor();
}
