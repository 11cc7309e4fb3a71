import { describe, expect, it } from "vitest";
import type { TenantSecrets } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import { ring, service } from "./support.ts";

/** A vault whose `get` may be another one for some tenants, or for some time. */
function vault(
  get?: (tenant: string, kept: () => Uint8Array | undefined) => Promise<Uint8Array | undefined>,
) {
  const secrets = new Map<string, Uint8Array>();
  const tenantSecrets: TenantSecrets = {
    get: async (tenant) => {
      const kept = () => secrets.get(tenant);
      return get === undefined ? kept() : get(tenant, kept);
    },
    async create(tenant, secret) {
      const kept = secrets.get(tenant) ?? secret;
      secrets.set(tenant, kept);
      return kept;
    },
    remove: async (tenant) => void secrets.delete(tenant),
  };
  return ring({ tenantSecrets });
}

/** A process on virtual time, whose store is given 5 seconds and whose vault half of that. */
function timed(encryption: ReturnType<typeof vault>) {
  const clock = manualClock();
  const store = memoryStore({ clock: clock.now });
  const api = service({ store, encryption, runtime: clock, breaker: { minCalls: 5 } });
  return { clock, store, ...api };
}

/** Something that comes when it is told to. */
function late() {
  let come = () => {};
  const comes = new Promise<void>((resolve) => {
    come = resolve;
  });
  return { come, comes };
}

describe("a vault", () => {
  it("that fails stops everything, and nothing is executed", async () => {
    const api = service({
      store: memoryStore(),
      encryption: vault(() => Promise.reject(new Error("the vault is sealed"))),
    });
    expect((await api.post("k1")).status).toBe(503);
    expect(api.runs()).toBe(0);
  });

  it("that fails for one tenant is no reason to refuse the others", async () => {
    const encryption = vault(async (tenant, kept) => {
      if (tenant === "globex") throw new Error("403 from the vault");
      return kept();
    });
    const api = service({ store: memoryStore(), encryption, breaker: { minCalls: 5 } });
    for (let i = 0; i < 20; i++) expect((await api.post(`k${i}`, "hello", "globex")).status).toBe(503);
    expect(api.latchkey.health().breaker).toBe("closed");
    expect((await api.post("k1", "hello", "acme")).status).toBe(201);
    expect(api.runs()).toBe(1);
  });

  it("that does not answer for one tenant is no reason to refuse the others", async () => {
    const api = timed(
      vault((tenant, kept) => (tenant === "globex" ? new Promise(() => {}) : Promise.resolve(kept()))),
    );
    const refused = Array.from({ length: 20 }, (_, i) => api.post(`k${i}`, "hello", "globex"));
    await api.clock.advance(2_500);
    expect(new Set((await Promise.all(refused)).map(({ status }) => status))).toEqual(new Set([503]));
    expect(api.latchkey.health().breaker).toBe("closed");
    expect((await api.post("k1", "hello", "acme")).status).toBe(201);
    expect(api.runs()).toBe(1);
  });

  it("that never answers one question is asked again by those who come later", async () => {
    let asked = 0;
    const api = timed(
      vault((_tenant, kept) => {
        asked += 1;
        return asked === 1 ? new Promise(() => {}) : Promise.resolve(kept());
      }),
    );
    const first = api.post("k1");
    const beside = api.post("k2");
    await api.clock.advance(5_000);
    expect([(await first).status, (await beside).status, asked]).toEqual([503, 503, 1]);
    const later = api.post("k1");
    await api.clock.advance(5_000);
    expect((await later).status).toBe(201);
    expect(api.runs()).toBe(1);
  });
});

describe("a secret that comes when nobody waits for it any more", () => {
  it.each(["vault", "store"])("from the %s, has nothing reserved, and the retry runs once", async (place) => {
    const { come, comes } = late();
    const api = timed(place === "vault" ? vault((_tenant, kept) => comes.then(kept)) : ring());
    const read = api.store.notes.read.bind(api.store.notes);
    if (place === "store") api.store.notes.read = (names) => comes.then(() => read(names));
    const first = api.post("k1");
    await api.clock.advance(5_000);
    expect((await first).status).toBe(503);
    // Longer than anybody remembers that it was asked.
    await api.clock.advance(60_000);
    come();
    await api.clock.advance(60_000);
    expect((await api.store.read({ scope: "acme", key: "k1" })).record).toBeUndefined();
    expect((await api.post("k1")).status).toBe(201);
    expect(api.runs()).toBe(1);
  });
});
