import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import type { Attack } from "./attacks/attack.ts";
import { failOpen, incompleteCoverage, partialFailure, workerReplay } from "./attacks/effects.ts";
import {
  crossTenantCollision,
  errorCaching,
  firstWriterRace,
  parameterMismatch,
  replayAfterTtl,
  ttlRace,
} from "./attacks/requests.ts";
import { keyEnumeration, keySpraying, staleCache } from "./attacks/tenants.ts";

/** The rows of docs/threat-model.md, each as an attack. */
const attacks: Readonly<Record<string, Attack>> = {
  "Concurrent first-writer race": firstWriterRace,
  "Cross-tenant key collision": crossTenantCollision,
  "Parameter mismatch": parameterMismatch,
  "Partial failure": partialFailure,
  "Incomplete coverage": incompleteCoverage,
  "Fail-open on a degraded store": failOpen,
  "Worker replay": workerReplay,
  "Key enumeration": keyEnumeration,
  "Replay after TTL": replayAfterTtl,
  "Error caching": errorCaching,
  "TTL race": ttlRace,
  "Key spraying": keySpraying,
  "Stale cache": staleCache,
};

describe.each(Object.entries(attacks))("%s", (_name, attack) => {
  it("does no damage", async () => {
    expect(await attack(true)).toBe(0);
  });

  it("does damage where its control is taken out, so that the attack is one", async () => {
    expect(await attack(false)).toBeGreaterThan(0);
  });
});

describe("docs/threat-model.md", () => {
  it("has these rows, and no others", () => {
    const page = readFileSync(fileURLToPath(new URL("../../docs/threat-model.md", import.meta.url)), "utf8");
    const rows = [...page.matchAll(/^\| \*\*(.+?)\*\* \|/gm)].map(([, name]) => name);
    expect(rows).toEqual(Object.keys(attacks));
  });
});
