import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { expect, it } from "vitest";
import { root } from "../support/bundle.ts";
import { readMarkdown } from "../support/markdown.ts";

const pages = [
  ...["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"],
  ...readdirSync(join(root, "docs"))
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name}`),
];

it.each(pages)("what %s links to is there, and so is the heading", (page) => {
  expect(brokenIn(page, readFileSync(join(root, page), "utf8"))).toEqual([]);
});

it.each(pages)("a link on %s that bears the name of a page leads to that page", (page) => {
  const text = readFileSync(join(root, page), "utf8");
  const astray = [...text.matchAll(/\[([\w-]+)\]\(([^)#\s]+)/g)].filter(([, name = "", target = ""]) => {
    const named = `${name.toLowerCase()}.md`;
    return pages.includes(`docs/${named}`) && basename(target) !== named;
  });
  expect(astray.map(([link]) => `${link})`)).toEqual([]);
});

it("a file, a picture or a heading that is not there is found", () => {
  const text = [
    "[a file](nowhere.md), ![a picture](images/nowhere.png), [a heading](stores.md#nowhere), [here](#nowhere)",
    "[defined][far] and <img src='' alt='' /><img src=\"nowhere.svg\">",
    "[far]: ../nowhere/",
    "[there](stores.md), [the page itself](#a-heading), [elsewhere](https://example.com/nowhere)",
    "`[code](nowhere.ts)`",
    "```md",
    "[code](nowhere.ts)",
    "```",
    "# A heading",
  ].join("\n");
  expect(brokenIn("docs/cli.md", text)).toEqual([
    "nowhere.md",
    "images/nowhere.png",
    "stores.md#nowhere",
    "#nowhere",
    "../nowhere/",
    "nowhere.svg",
  ]);
});

it("a heading is linked to by the name that GitHub gives it", () => {
  const text = [
    "# What's `latchkey work`, and *why*?",
    "## Redis & Valkey",
    "## LATCHKEY_STORE",
    "## [Stores](stores.md) ##",
    "## Übung – 2",
    "## Limits",
    "```sh",
    "# no heading",
    "```",
    "### Limits",
  ].join("\n");
  expect([...readMarkdown(text).anchors]).toEqual([
    "whats-latchkey-work-and-why",
    "redis--valkey",
    "latchkey_store",
    "stores",
    "übung--2",
    "limits",
    "limits-1",
  ]);
});

/** The targets on a page that lead to nothing. What is on the web is not asked for. */
function brokenIn(page: string, text: string): string[] {
  const own = readMarkdown(text);
  return own.targets.filter((target) => {
    if (/^[a-z][a-z0-9+.-]*:/i.test(target)) return false;
    const [path = "", anchor] = target.split("#", 2).map(decodeURIComponent);
    const file = path === "" ? page : relative(root, join(root, dirname(page), path));
    if (!existsSync(join(root, file))) return true;
    if (anchor === undefined || !file.endsWith(".md")) return false;
    const linked = file === page ? own : readMarkdown(readFileSync(join(root, file), "utf8"));
    return !linked.anchors.has(anchor);
  });
}
