import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { instruments, prometheusName } from "../../src/observe/instruments.ts";

const page = readFileSync(new URL("../../docs/observability.md", import.meta.url), "utf8");

describe("docs/observability.md", () => {
  it("lists every instrument as it is, and none that is not", () => {
    const rows = page.split("\n").filter((line) => line.startsWith("| `api.idempotency."));
    expect(rows).toEqual(
      [...instruments.values()].map((instrument) => {
        const { name, kind, unit, label, help } = instrument;
        const shownLabel = label === undefined ? "" : `\`${label.name}\``;
        return `| \`${name}\` | \`${prometheusName(instrument)}\` | ${kind} | ${unit} | ${shownLabel} | ${help} |`;
      }),
    );
  });
});
