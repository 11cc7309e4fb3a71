import { expect, it } from "vitest";
import { gate, openBench, useBrowser } from "./bench.ts";

useBrowser();

// A process tells of its duplicates every five seconds, and the page looks again every three.
const timeout = 40_000;

it("a record tells what its duplicates got: 409, the stored answer, or 422", { timeout }, async () => {
  const bench = await openBench();
  const { page, latchkey } = bench;
  await bench.pay("lost-1", { isLost: true });
  await bench.open("record?scope=acme&key=lost-1");
  const duplicates = page.getByRole("region", { name: "Duplicates" });
  await duplicates.getByText("No process remembers a duplicate of it.").waitFor();

  for (const status of [409, 409]) expect((await bench.pay("lost-1")).status).toBe(status);
  await latchkey.resolve({
    of: { tenant: "acme", key: "lost-1" },
    verdict: { kind: "completed", response: { status: 201, body: "{}" } },
    by: "ada",
  });
  for (const status of [201, 201, 201]) expect((await bench.pay("lost-1")).status).toBe(status);
  expect((await bench.pay("lost-1", { amount: 200 })).status).toBe(422);
  // The last to come, and so nothing is missing once it is told of.
  await duplicates.getByText("1 was another request under this key (422)").waitFor();
  expect((await duplicates.getByRole("listitem").allInnerTexts()).slice(0, -1)).toEqual([
    "3 were answered with the stored answer",
    "2 were told that the outcome is unknown (409)",
    "1 was another request under this key (422)",
  ]);
  await duplicates.getByText(/^the last (now|\d+ s ago)$/).waitFor();
  expect(bench.executions("lost-1")).toBe(1);
});

it("a duplicate of what is being executed is told apart from the others", { timeout }, async () => {
  const bench = await openBench();
  const { page, latchkey } = bench;
  const held = gate();
  const once = () => latchkey.run({ tenant: "acme", key: "slow" }, () => held.opened);
  const running = once();
  await bench.open("record?scope=acme&key=slow");
  const duplicates = page.getByRole("region", { name: "Duplicates" });
  await duplicates.getByText("No process remembers a duplicate of it.").waitFor();
  await expect(once()).rejects.toThrow();
  await duplicates.getByText("1 was told that it is being executed (409)").waitFor();
  await duplicates.getByText("0 were answered with the stored answer").waitFor();
  held.open();
  await running;
});
