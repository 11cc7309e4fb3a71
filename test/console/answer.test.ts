import { expect, it } from "vitest";
import { NotDeliverableError, relay } from "../../src/workers/workers.ts";
import { openBench, useBrowser } from "./bench.ts";

useBrowser();

it("an answer is shown with its status, headers and body", async () => {
  const bench = await openBench();
  const { page } = bench;
  await bench.pay("paid-1");
  await bench.open("record?scope=acme&key=paid-1");
  const answer = page.getByRole("region", { name: "Answer" });
  await answer.getByRole("heading", { name: "Answer 201" }).waitFor();
  await answer.getByRole("row", { name: "content-type application/json" }).waitFor();
  await answer.getByText('"id": "ch_1"').waitFor();
  expect(await answer.getByRole("button", { name: /body/ }).count()).toBe(1);
});

it("where answers are hidden, neither they nor results nor payloads come to the page", async () => {
  const bench = await openBench({ admin: { responses: "hidden" } });
  const { page, latchkey } = bench;
  const heard: string[] = [];
  page.on("response", async (response) => {
    const type = response.headers()["content-type"] ?? "";
    if (type.startsWith("application/json")) heard.push(await response.text().catch(() => ""));
  });
  expect(await (await bench.pay("paid-1")).text()).toContain("ch_1");
  await latchkey.run({ tenant: "acme", key: "order-1" }, (op) =>
    op.atomic("booked", (tx) => op.enqueue(tx, "receipt.send", { to: "ann@example.com" })),
  );
  const mail = relay(latchkey as never, {
    async deliver() {
      throw new NotDeliverableError("the mailbox does not exist");
    },
  });
  expect(await mail.runOnce()).toMatchObject({ dead: 1 });

  await bench.open("record?scope=acme&key=paid-1");
  const answer = page.getByRole("region", { name: "Answer" });
  await answer.getByText("Not shown. This admin API is configured not to show answers.").waitFor();
  await answer.getByRole("heading", { name: "Answer 201" }).waitFor();
  expect(await answer.getByRole("button", { name: /body/ }).count()).toBe(0);
  const phases = page.getByRole("list", { name: "Phases" });
  await phases.getByText("charge_created").first().waitFor();
  expect(await phases.getByText("Result").count()).toBe(0);

  await page.goto(`${bench.url}/#/dead-letters`);
  const letters = page.getByRole("table", { name: "Dead letters" });
  await letters.getByText("the mailbox does not exist").waitFor();
  await expect.poll(() => heard.join()).toContain("the mailbox does not exist");
  expect(heard.join()).not.toMatch(/ch_1|ann@example/);
});

it("an answer that its route redacts is shown as it is stored, and says so", async () => {
  const bench = await openBench({ latchkey: { redact: { paths: ["charge.id"] } } });
  const { page } = bench;
  expect(await (await bench.pay("paid-1")).text()).toContain("ch_1");
  await bench.open("record?scope=acme&key=paid-1");
  const answer = page.getByRole("region", { name: "Answer" });
  await answer.getByText('"id": "[redacted]"').waitFor();
  await answer.getByRole("row", { name: "idempotency-redacted true" }).waitFor();
  expect(await answer.textContent()).not.toContain("ch_1");
});

it("an answer that could not be redacted is not stored, and the page says why it is not shown", async () => {
  const body = () => {
    throw new Error("it has a form that nobody expected");
  };
  const bench = await openBench({ latchkey: { redact: { body } } });
  const { page } = bench;
  expect((await bench.pay("paid-1")).status).toBe(201);
  await bench.open("record?scope=acme&key=paid-1");
  const answer = page.getByRole("region", { name: "Answer" });
  await answer.getByText("Not shown. The answer could not be redacted as its route says").waitFor();
  await answer.getByRole("heading", { name: "Answer 201" }).waitFor();
});
