import { describe, expect, it } from "vitest";
import { createLatchkey } from "../../src/index.ts";
import { type PrometheusOptions, prometheusMetrics } from "../../src/observe/prometheus.ts";
import { SpaceSaving } from "../../src/observe/space-saving.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import { parseExposition } from "./exposition-parser.ts";

function measured(options: PrometheusOptions = {}) {
  const clock = manualClock();
  const latchkey = createLatchkey({
    store: memoryStore({ clock: clock.now }),
    tenant: "single",
    runtime: clock,
  });
  const metrics = prometheusMetrics(latchkey, options);
  const about = { type: "reserved", key: "k", joined: false, cached: false, discovered: false } as const;
  return {
    clock,
    duplicate: (scope: string) => latchkey.engine.events.emit({ ...about, scope, outcome: "replay" }),
    async shown(): Promise<Record<string, number>> {
      const family = parseExposition(await metrics.text()).get("api_idempotency_tenant_duplicates");
      return Object.fromEntries((family?.samples ?? []).map(({ labels, value }) => [labels.tenant, value]));
    },
  };
}

/** The same numbers in every run. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

describe("duplicates by tenant", () => {
  it("the heavy ones are found among a hundred thousand, and no more than twenty are shown", async () => {
    const { duplicate, shown } = measured();
    const next = random(7);
    const heavy = Array.from({ length: 10 }, (_, index) => `heavy-${index}`);
    const truth = new Map(heavy.map((tenant) => [tenant, 0]));
    for (let index = 0; index < 150_000; index += 1) {
      if (next() < 0.3) {
        const tenant = heavy[Math.floor(next() * heavy.length)] as string;
        truth.set(tenant, (truth.get(tenant) ?? 0) + 1);
        duplicate(tenant);
      } else {
        duplicate(`light-${Math.floor(next() * 100_000)}`);
      }
    }
    const tenants = await shown();
    expect(Object.keys(tenants)).toHaveLength(20);
    expect(Object.keys(tenants).slice(0, 10).sort()).toEqual(heavy.sort());
    for (const [tenant, count] of truth) {
      expect(tenants[tenant]).toBeLessThanOrEqual(count);
      expect(tenants[tenant]).toBeGreaterThan(count * 0.7);
    }
  });

  it("memory is bounded by the capacity, and a count is never above the truth by more than its error", () => {
    const sketch = new SpaceSaving(50);
    const truth = new Map<string, number>();
    const next = random(11);
    for (let index = 0; index < 20_000; index += 1) {
      const name = `t${Math.floor(next() ** 3 * 500)}`;
      truth.set(name, (truth.get(name) ?? 0) + 1);
      sketch.add(name, 1);
    }
    const entries = [...sketch.entries()];
    expect(entries).toHaveLength(50);
    expect(entries.reduce((sum, { count }) => sum + count, 0)).toBe(20_000);
    for (const { name, count, error } of entries) {
      expect(count).toBeGreaterThanOrEqual(truth.get(name) ?? 0);
      expect(count - error).toBeLessThanOrEqual(truth.get(name) ?? 0);
      expect(error).toBeLessThanOrEqual(20_000 / 50);
    }
    const names = new Set(entries.map(({ name }) => name));
    for (const [name, count] of truth) if (count > 20_000 / 50) expect(names).toContain(name);
  });

  it("a tenant's endpoints are counted together, and what is old is forgotten", async () => {
    const { clock, duplicate, shown } = measured();
    duplicate("acme POST /rides");
    duplicate("acme POST /charges");
    duplicate("acme");
    expect(await shown()).toEqual({ acme: 3 });
    await clock.advance(180_000);
    duplicate("acme");
    expect(await shown()).toEqual({ acme: 4 });
    await clock.advance(130_000);
    expect(await shown()).toEqual({ acme: 1 });
    await clock.advance(300_000);
    expect(await shown()).toEqual({});
  });

  it.each(["ada@example.com", "+491701234567", "4111111111111111", "4111-1111-1111-1111"])(
    "a tenant that looks like a person, %s, is shown as a digest",
    async (tenant) => {
      const { duplicate, shown } = measured();
      duplicate(tenant);
      const [label = ""] = Object.keys(await shown());
      expect(label).toMatch(/^sha256:[0-9a-f]{16}$/);
    },
  );

  it("tenantLabel names them, those of one name are one, and one that throws hides the tenant", async () => {
    const tenantLabel = (tenant: string) => {
      if (tenant === "bad") throw new Error(`no name for ${tenant}`);
      return tenant === "none" ? (undefined as never) : `group "${tenant[0]}"\n\\`;
    };
    const { duplicate, shown } = measured({ tenantLabel });
    for (const tenant of ["acme", "ajax", "bad", "none"]) duplicate(tenant);
    expect(await shown()).toEqual({ 'group "a"\n\\': 2, other: 2 });
  });

  it("as many are shown as are asked for", async () => {
    const { duplicate, shown } = measured({ tenantsMax: 2 });
    for (const tenant of ["a", "b", "b", "c", "c", "c"]) duplicate(tenant);
    expect(await shown()).toEqual({ c: 3, b: 2 });
    const none = measured({ tenantsMax: 0 });
    none.duplicate("a");
    expect(await none.shown()).toEqual({});
  });
});
