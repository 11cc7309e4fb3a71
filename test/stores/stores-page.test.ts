import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const textOf = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");

/** The cells of each row of a page's tables. */
function rowsOf(path: string): readonly (readonly string[])[] {
  const rows = textOf(path).match(/^\|.*\|$/gm) ?? [];
  return rows.map((row) =>
    row
      .split("|")
      .map((cell) => cell.trim())
      .slice(1, -1),
  );
}

const numbersOf = (cell = "") =>
  (cell.match(/\d[\d,]*/g) ?? []).map((text) => Number(text.replaceAll(",", "")));

/** Bytes per key as benchmarks/stores.js has measured them: the last column of the only table that has it. */
function measuredBytes(): ReadonlyMap<string, number> {
  const rows = rowsOf("benchmarks/RESULTS.md").filter((row) => row.length === 6 && /µs$/.test(row[4] ?? ""));
  return new Map(
    rows.flatMap(([name = "", , , , , bytes]) => numbersOf(bytes).map((number) => [name, number])),
  );
}

/** Where vacuum and checkpoints happen to be differs from run to run; what has changed for good differs by more. */
const tolerance = 1.15;

describe.each([
  ["docs/stores.md", 1],
  ["docs/operations.md", 2],
])("bytes per key in %s", (page, column) => {
  it.each([
    ["SQLite", "SQLite, synchronous=FULL"],
    ["Postgres", "Postgres"],
    ["MariaDB", "MariaDB"],
    ["Redis", "Redis (ioredis)"],
  ])("of %s are those that were measured last", (name, measured) => {
    const bytes = measuredBytes().get(measured) ?? Number.NaN;
    const sizes = rowsOf(page).filter(
      ([first = "", ...rest]) => first.split(",")[0] === name && rest.length < 4,
    );
    const stated = sizes.map((row) => numbersOf(row[column])).find((numbers) => numbers.length > 0) ?? [];
    expect(Math.min(...stated) / tolerance).toBeLessThanOrEqual(bytes);
    expect(Math.max(...stated) * tolerance).toBeGreaterThanOrEqual(bytes);
  });
});

it("docs/stores.md asks for the right to everything that the DynamoDB store sends", () => {
  const folder = "src/stores/dynamodb";
  const sources = readdirSync(new URL(`../../${folder}`, import.meta.url)).filter((file) =>
    file.endsWith(".ts"),
  );
  const sent = sources.flatMap((file) =>
    [...textOf(`${folder}/${file}`).matchAll(/new (\w+)Command\(/g)].map(([, command]) => command),
  );
  expect(sent).toContain("GetItem");
  const rights = /^- IAM: [\s\S]*?\n(?=- )/m.exec(textOf("docs/stores.md"))?.[0] ?? "";
  // What a transaction does is asked for by the name of each of its parts.
  const wanted = sent.filter((command) => command !== "TransactWriteItems");
  expect(wanted.filter((command) => !new RegExp(`\\b${command}\\b`).test(rights))).toEqual([]);
});
