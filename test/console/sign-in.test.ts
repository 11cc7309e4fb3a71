import { expect, it } from "vitest";
import { ada, eve, openBench, useBrowser } from "./bench.ts";

useBrowser();

it("a wrong token is refused in words, the right one opens the console, and signing out forgets it", async () => {
  const bench = await openBench();
  const { page } = bench;
  bench.expectRefusalOf("session");
  await bench.signIn("not-a-token-of-anybody");
  await page.getByRole("alert").getByText("This token is not accepted").waitFor();
  expect(await page.evaluate("sessionStorage.length")).toBe(0);

  await page.getByLabel("Operator token").fill(ada.token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
  await page.getByText(ada.name, { exact: true }).waitFor();

  // It outlives a reload of the tab, and is in no address.
  await page.reload();
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
  expect(page.url()).not.toContain(ada.token);

  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Operator token").waitFor();
  expect(await page.evaluate("sessionStorage.length")).toBe(0);
  await page.reload();
  await page.getByLabel("Operator token").waitFor();
});

it("an operator who may only look cannot change anything", async () => {
  const bench = await openBench();
  await bench.pay("k-1");
  await bench.signIn(eve.token);
  const { page } = bench;
  await page.getByText("(read only)").waitFor();
  await page.goto(`${bench.url}/#/record?scope=acme&key=k-1`);
  expect(await page.getByRole("button", { name: "Bust this key…" }).isDisabled()).toBe(true);
});

it("whoever goes on as soon as the pages are there gets where they go", async () => {
  const bench = await openBench();
  const { page } = bench;
  await bench.pay("paid-1");
  // In the moment in which they appear, before anything that the page does after it is shown.
  await page.addInitScript({
    content: `new MutationObserver(() => {
      if (document.querySelector("nav[aria-label=Pages]") !== null && location.hash === "") {
        location.hash = "#/record?scope=acme&key=paid-1";
      }
    }).observe(document, { childList: true, subtree: true });`,
  });
  await bench.signIn();
  await page.getByRole("heading", { name: "Answer 201" }).waitFor();
});
