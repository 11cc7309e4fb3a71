import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { withReference } from "../../scripts/cli-docs/reference.ts";
import { commands } from "../../src/cli/commands.ts";
import { exitCodes } from "../../src/cli/failure.ts";

const page = readFileSync(new URL("../../docs/cli.md", import.meta.url), "utf8");

it("docs/cli.md has every command and option, as npm run docs:cli writes them", () => {
  expect(withReference(page, commands)).toBe(page);
  for (const { name } of commands) expect(page).toContain(`\n### ${name}\n`);
});

it("docs/cli.md explains every exit code, and every variable that is read", () => {
  for (const code of Object.values(exitCodes)) expect(page).toMatch(new RegExp(`^\\| ${code} \\| `, "m"));
  const sources = ["store-options", "work-plan", "operators", "commands/work", "screen"].map((name) =>
    readFileSync(new URL(`../../src/cli/${name}.ts`, import.meta.url), "utf8"),
  );
  const read = new Set(sources.join("").match(/\b(LATCHKEY_[A-Z_]+|NO_COLOR)\b/g));
  expect(read.size).toBeGreaterThan(6);
  for (const variable of read) expect(page).toContain(`| \`${variable}\` |`);
});
