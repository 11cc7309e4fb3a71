import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const folder = new URL("../../src/stores/redis/scripts/", import.meta.url);

describe.each(readdirSync(folder))("the script %s", (file) => {
  it("begins with what it is for, what it is told and what it answers", () => {
    const lines = readFileSync(new URL(file, folder), "utf8").split("\n");
    const head = lines.slice(
      0,
      lines.findIndex((line) => !line.startsWith("-- ") && line !== "--"),
    );
    expect(head[0]).toMatch(/^-- [A-Z]/);
    expect(head.filter((line) => /^-- Input: {2,}\S/.test(line))).toHaveLength(1);
    expect(head.filter((line) => /^-- Output: {2,}\S/.test(line))).toHaveLength(1);
  });
});
