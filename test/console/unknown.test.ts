import { expect, it } from "vitest";
import { type Bench, openBench, useBrowser } from "./bench.ts";

useBrowser();

async function withUnknown(key: string): Promise<Bench> {
  const bench = await openBench();
  await bench.pay(key, { isLost: true });
  expect((await bench.latchkey.inspect({ tenant: "acme", key })).record?.state).toBe("unknown");
  await bench.open("unknown");
  return bench;
}

it("shows why an outcome is unknown, and the provider's key to look it up by", async () => {
  const { page, latchkey } = await withUnknown("lost-1");
  const evidence = page.getByRole("region", { name: "Evidence about lost-1" });
  const { record } = await latchkey.inspect({ tenant: "acme", key: "lost-1" });
  if (record?.state !== "unknown") throw new Error("it is not unknown");
  await evidence.getByText(record.reason).waitFor();
  await evidence.getByText("not yet").waitFor();
  await evidence.getByText("open: may have happened").waitFor();
  await evidence.getByText("charge_created").waitFor();
  await evidence.getByRole("button", { name: "Copy the provider's key of charge_created" }).waitFor();
});

it("an operator says that it was executed: retries get that answer, and nothing is executed", async () => {
  const bench = await withUnknown("lost-1");
  const { page, latchkey } = bench;
  await page.getByRole("button", { name: "It was executed…" }).click();
  const dialog = page.getByRole("dialog", { name: "It was executed" });
  await dialog.getByText("nothing is executed again").waitFor();
  await dialog.getByLabel("Status").fill("202");
  await dialog.getByLabel("Body").fill('{"charge":');
  await dialog.getByRole("button", { name: "Settle with this answer" }).click();
  await dialog.getByRole("alert").getByText("The body is not JSON").waitFor();
  await dialog.getByLabel("Body").fill('{"charge":"ch_found"}');
  await dialog.getByRole("button", { name: "Add a header" }).click();
  await dialog.getByLabel("Name of header 2").fill("location");
  await dialog.getByLabel("Value of header 2").fill("/charges/ch_found");
  await dialog.getByRole("button", { name: "Settle with this answer" }).click();
  await page.getByRole("status").getByText("every retry of lost-1 gets 202").waitFor();
  await page.getByText("Every outcome is known.").waitFor();

  const retry = await bench.pay("lost-1");
  expect(retry.status).toBe(202);
  expect(await retry.text()).toBe('{"charge":"ch_found"}');
  expect(retry.headers.get("location")).toBe("/charges/ch_found");
  expect(retry.headers.get("content-type")).toBe("application/json");
  expect(bench.executions("lost-1")).toBe(1);

  await page.goto(`${bench.url}/#/record?scope=acme&key=lost-1`);
  await page.getByRole("region", { name: "Answer 202" }).getByText('"charge": "ch_found"').waitFor();
  const timeline = page.getByRole("list", { name: "Timeline" });
  await timeline.getByRole("listitem").filter({ hasText: "ada" }).getByText("completed").waitFor();
  expect((await latchkey.audit({ limit: 1 }))[0]).toMatchObject({
    by: "ada",
    from: "unknown",
    to: "completed",
  });
  await page.getByRole("link", { name: "Audit entries" }).click();
  await page.getByRole("table", { name: "Audit trail" }).getByRole("cell", { name: "ada" }).waitFor();
});

it("an operator says that it was not executed: the next request is executed, and why is on record", async () => {
  const bench = await withUnknown("lost-2");
  const { page } = bench;
  await page.getByRole("button", { name: "It was not executed…" }).click();
  const dialog = page.getByRole("dialog", { name: "It was not executed" });
  await dialog.getByText("it happens twice").waitFor();
  await dialog.getByLabel("How is it known?").fill("the provider's export has no such charge");
  await dialog.getByRole("button", { name: "It may be tried again" }).click();
  await page.getByRole("status").getByText("the next request with the key lost-2 is executed").waitFor();

  expect((await bench.pay("lost-2")).status).toBe(201);
  expect(bench.executions("lost-2")).toBe(2);
  await page.goto(`${bench.url}/#/audit?scope=acme&key=lost-2`);
  const entry = page.getByRole("row").filter({ hasText: "the provider's export has no such charge" });
  await entry.getByText("ada").waitFor();
});

it("the call happened: the operation goes on after it, with its result, and does not call again", async () => {
  const bench = await withUnknown("lost-3");
  const { page } = bench;
  await page.getByRole("button", { name: "The call happened: go on…" }).click();
  const dialog = page.getByRole("dialog", { name: "The call happened: go on" });
  await dialog.getByLabel("Its result").fill('{"id":"ch_provider"}');
  await dialog.getByLabel("The provider's reference").fill("ch_provider");
  await dialog.getByRole("button", { name: "Go on from there" }).click();
  await page.getByRole("status").getByText("goes on after charge_created").waitFor();

  const retry = await bench.pay("lost-3");
  expect(await retry.json()).toEqual({ key: "lost-3", charge: { id: "ch_provider" } });
  expect(bench.executions("lost-3")).toBe(1);
});

it("what somebody else has settled meanwhile is said, and stays as it is", async () => {
  const bench = await withUnknown("lost-4");
  const { page, latchkey } = bench;
  bench.expectRefusalOf("record/resolve");
  await page.getByRole("button", { name: "It was not executed…" }).click();
  const of = { tenant: "acme", key: "lost-4" };
  await latchkey.resolve({ of, by: "bob", verdict: { kind: "completed", response: { status: 200 } } });
  await page.getByLabel("How is it known?").fill("I think so");
  await page.getByRole("button", { name: "It may be tried again" }).click();
  await page.getByRole("alert").getByText("not unknown any more").waitFor();
  expect((await latchkey.inspect(of)).record?.state).toBe("completed");
});

it("whoever comes for one that is settled by now is not shown another in its place", async () => {
  const bench = await withUnknown("lost-5");
  const { page, latchkey } = bench;
  await bench.pay("lost-6", { isLost: true });
  await page.goto(`${bench.url}/#/unknown?scope=acme&key=lost-5`);
  await page.getByRole("button", { name: "Look again" }).click();
  await page.getByRole("region", { name: "Evidence about lost-5" }).waitFor();
  await page.getByRole("button", { name: "It was not executed…" }).click();
  await page.getByRole("dialog").getByText("lost-5 of acme").waitFor();
  await page.getByRole("button", { name: "Cancel" }).click();

  const of = { tenant: "acme", key: "lost-5" };
  await latchkey.resolve({ of, by: "bob", verdict: { kind: "completed", response: { status: 200 } } });
  await page.getByRole("button", { name: "Look again" }).click();
  await page.getByText("lost-5 is not among these").waitFor();
  expect(await page.getByRole("button", { name: "It was not executed…" }).count()).toBe(0);

  // After a verdict the next one is shown.
  await page.getByRole("link", { name: /lost-6/ }).click();
  await bench.pay("lost-7", { isLost: true });
  await page.getByRole("button", { name: "It was not executed…" }).click();
  await page.getByRole("dialog").getByText("lost-6 of acme").waitFor();
  await page.getByLabel("How is it known?").fill("the provider's export has no such charge");
  await page.getByRole("button", { name: "It may be tried again" }).click();
  await page.getByRole("region", { name: "Evidence about lost-7" }).waitFor();
});
