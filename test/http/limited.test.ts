import { describe, expect, it, vi } from "vitest";
import { idempotent, statusResource } from "../../src/adapters/fetch.ts";
import { ConfigError, createLatchkey, type LatchkeyOptions, OperationRefusedError } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { type Fault, faultyStore, manualClock } from "../../src/testing/index.ts";

function service(options: Partial<LatchkeyOptions> = {}) {
  const clock = manualClock();
  const state: { fault: Fault } = { fault: { kind: "none" } };
  const store = faultyStore({
    store: memoryStore({ clock: clock.now }),
    runtime: clock,
    choose: () => state.fault,
  });
  const latchkey = createLatchkey({
    store,
    tenant: (request) => request.header("x-tenant"),
    statusPath: "/status",
    runtime: clock,
    ...options,
  });
  let runs = 0;
  const protect = idempotent(latchkey)(() => {
    runs += 1;
    return Response.json({ runs }, { status: 201 });
  });
  const status = statusResource(latchkey);
  return {
    clock,
    store,
    state,
    latchkey,
    runs: () => runs,
    post: (key: string, tenant = "acme", init: RequestInit = {}) =>
      protect(
        new Request("http://x/charges", {
          method: "POST",
          ...init,
          headers: { "idempotency-key": key, "x-tenant": tenant, ...init.headers },
        }),
      ),
    status: (key: string) =>
      status(new Request(`http://x/status/${key}`, { headers: { "x-tenant": "acme" } })),
  };
}

const perMinute = (max: number) => ({ max, perMs: 60_000 });

describe("a tenant whose look-ups alone are limited", () => {
  it("is refused above them, and nobody else is", async () => {
    const of = (tenant: string) => (tenant === "acme" ? { lookUps: perMinute(1) } : undefined);
    const api = service({ limits: { of } });
    expect((await api.post("a")).status).toBe(201);
    expect((await api.post("a")).status).toBe(429);
    expect((await api.post("b", "other")).status).toBe(201);
    expect((await api.post("b", "other")).status).toBe(201);
  });
});

describe("a tenant over its limit of new keys", () => {
  it("is answered 429 with the fields of the RateLimit draft, and nothing is executed or reserved", async () => {
    const api = service({ limits: { newKeys: perMinute(2) } });
    expect((await api.post("a")).status).toBe(201);
    expect((await api.post("b")).status).toBe(201);
    const { reserve } = api.store.calls;
    const refused = await api.post("c");
    expect(refused.status).toBe(429);
    expect(await refused.json()).toMatchObject({
      type: "https://latchkey.dev/problems/rate-limited",
      code: "rate-limited",
      status: 429,
      retry: "same-key",
    });
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(55);
    expect(structured(refused.headers.get("ratelimit-policy"))).toEqual({ name: "new-keys", q: 2, w: 60 });
    const limit = structured(refused.headers.get("ratelimit"));
    expect(limit).toEqual({ name: "new-keys", r: 0, t: Number(refused.headers.get("retry-after")) });
    expect(api.runs()).toBe(2);
    expect(api.store.calls.reserve).toBe(reserve);
  });

  it("still gets the answers of requests that are done, and other tenants get theirs", async () => {
    const api = service({ limits: { newKeys: perMinute(1) } });
    const first = await api.post("a");
    expect((await api.post("b")).status).toBe(429);
    const replay = await api.post("a");
    expect(replay.status).toBe(201);
    expect(replay.headers.get("idempotency-replayed")).toBe("true");
    expect(await replay.text()).toBe(await first.text());
    expect((await api.status("a")).status).toBe(201);
    expect((await api.post("a", "bolt")).status).toBe(201);
  });

  it("may come again when the time is over that it was told", async () => {
    const api = service({ limits: { newKeys: { max: 1, perMs: 2_000 } } });
    await api.post("a");
    const refused = await api.post("b");
    expect(refused.status).toBe(429);
    await api.clock.advance(Number(refused.headers.get("retry-after")) * 1000);
    expect((await api.post("b")).status).toBe(201);
  });

  it("gets the fields of a cap without a window, and of a window that is not whole seconds", async () => {
    const capped = service({ limits: { activeKeys: 1 } });
    await capped.post("a");
    const refused = await capped.post("b");
    expect(structured(refused.headers.get("ratelimit-policy"))).toEqual({ name: "active-keys", q: 1 });
    const quick = service({ limits: { newKeys: { max: 1, perMs: 1_500 } } });
    await quick.post("a");
    const soon = await quick.post("b");
    expect(structured(soon.headers.get("ratelimit-policy"))).toEqual({ name: "new-keys", q: 1 });
    expect(structured(soon.headers.get("ratelimit"))).toMatchObject({ r: 0, t: 2 });
  });

  it("has the tenant's own name looked up, not how it is written in a scope", async () => {
    const asked: string[] = [];
    const api = service({
      limits: {
        newKeys: perMinute(1),
        of: (tenant) => {
          asked.push(tenant);
          return tenant === "café & co" ? { newKeys: perMinute(2) } : undefined;
        },
      },
      tenant: () => "café & co",
      scope: "tenant+endpoint",
    });
    expect((await api.post("a")).status).toBe(201);
    expect((await api.post("b")).status).toBe(201);
    expect((await api.post("c")).status).toBe(429);
    expect(new Set(asked)).toEqual(new Set(["café & co"]));
  });
});

describe("a tenant over its limit of look-ups", () => {
  it("is refused before its body is read and without a call to the store, also where it asks for a status", async () => {
    const api = service({ limits: { lookUps: perMinute(2) } });
    await api.post("a");
    expect((await api.status("a")).status).toBe(201);
    await api.post("a");
    const calls = { ...api.store.calls };
    let isRead = false;
    const body = new ReadableStream(
      {
        pull(controller) {
          isRead = true;
          controller.close();
        },
      },
      { highWaterMark: 0 },
    );
    const refused = await api.post("a", "acme", { body, duplex: "half" } as RequestInit);
    expect(refused.status).toBe(429);
    expect(structured(refused.headers.get("ratelimit-policy"))).toEqual({ name: "look-ups", q: 2, w: 60 });
    expect(isRead).toBe(false);
    expect((await api.status("a")).status).toBe(429);
    expect(api.store.calls).toEqual(calls);
    expect((await api.post("a", "bolt")).status).toBe(201);
  });

  it("cannot get around it by posing as a worker", async () => {
    const api = service({ limits: { lookUps: perMinute(5) } });
    const statuses: number[] = [];
    for (let count = 0; count < 20; count += 1) {
      const answer = await api.post(`guess-${count}`, "acme", { headers: { "latchkey-claim": "1" } });
      statuses.push(answer.status);
    }
    expect(statuses.filter((status) => status !== 429)).toEqual([404, 404, 404, 404, 404]);
  });
});

describe("an operation outside HTTP", () => {
  it("is refused when its tenant has used up its new keys, and one that is done gives its result", async () => {
    const { latchkey } = service({ limits: { newKeys: perMinute(1), lookUps: perMinute(1) } });
    let runs = 0;
    const run = (key: string) => latchkey.run({ tenant: "acme", key }, () => ++runs);
    expect(await run("a")).toBe(1);
    const refused = await run("b").catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(OperationRefusedError);
    expect(refused).toMatchObject({ code: "rate-limited" });
    expect((refused as OperationRefusedError).retryAfterMs).toBeGreaterThan(55_000);
    for (let count = 0; count < 5; count += 1) expect(await run("a")).toBe(1);
    expect(runs).toBe(1);
  });
});

describe("limits that cannot be kept", () => {
  it("are refused when they are given, all at once", () => {
    const wrong = { newKeys: { max: -1, perMs: 5 }, activeKeys: 1.5 };
    expect(() => service({ limits: wrong })).toThrow(ConfigError);
    expect(() => service({ limits: wrong })).toThrow(
      "the limits cannot be kept: newKeys.max is -1 and must be a whole number, 0 or more, or Infinity for no limit; " +
        "newKeys.perMs is 5 and must be whole milliseconds from 100 to 31 days; " +
        "activeKeys is 1.5 and must be a whole number, 0 or more, or Infinity for no limit",
    );
    expect(() => service({ limits: { of: "acme" as never } })).toThrow("limits.of must be a function");
    expect(() => service({ limits: 100 as never })).toThrow("limits must be an object");
  });

  it("are told when they come from the function for one tenant, which is then under those of everybody", async () => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    const api = service({
      limits: { newKeys: perMinute(1), of: () => ({ activeKeys: Number.NaN }) },
    });
    expect((await api.post("a")).status).toBe(201);
    expect((await api.post("b")).status).toBe(429);
    expect(warn).toHaveBeenCalledWith(expect.any(ConfigError));
    warn.mockRestore();
  });

  it("can be lifted for one tenant", async () => {
    const api = service({
      limits: {
        newKeys: perMinute(1),
        of: (tenant) => (tenant === "acme" ? { newKeys: perMinute(Number.POSITIVE_INFINITY) } : undefined),
      },
    });
    for (const key of ["a", "b", "c"]) expect((await api.post(key)).status).toBe(201);
  });
});

describe("a store that is sick", () => {
  it("is told of by health(), and its callers are told when to come again", async () => {
    const api = service({ breaker: { openMs: 20_000 } });
    expect(api.latchkey.health()).toEqual({
      store: api.store.name,
      breaker: "closed",
      since: api.clock.now(),
    });
    api.state.fault = { kind: "failBefore" };
    for (let count = 0; count < 20; count += 1) expect((await api.post(`key-${count}`)).status).toBe(503);
    expect(api.latchkey.health()).toMatchObject({ breaker: "open", since: api.clock.now() });
    const calls = { ...api.store.calls };
    const shed = await api.post("a");
    expect(shed.status).toBe(503);
    expect(Number(shed.headers.get("retry-after"))).toBeGreaterThanOrEqual(20);
    const status = await api.status("a");
    expect(status.status).toBe(503);
    expect(Number(status.headers.get("retry-after"))).toBeGreaterThanOrEqual(20);
    expect(api.store.calls).toEqual(calls);
    expect(api.runs()).toBe(0);
  });

  it("is asked each time where the breaker is left out", async () => {
    const api = service({ breaker: false });
    expect(api.latchkey.health()).toEqual({ store: api.store.name, breaker: "off", since: undefined });
    api.state.fault = { kind: "failBefore" };
    for (let count = 0; count < 30; count += 1) await api.post(`key-${count}`);
    expect(api.store.calls.reserve).toBe(30);
  });
});

/** One string with integer parameters, strictly as RFC 9651 writes them. */
function structured(field: string | null): Record<string, unknown> {
  const [, name, parameters] =
    /^"([ !#-[\]-~]*)"((?:;[a-z*][a-z\d_.*-]*=-?\d{1,15})*)$/.exec(field ?? "") ?? [];
  if (name === undefined || parameters === undefined) throw new Error(`not a structured field: ${field}`);
  const pairs = parameters
    .split(";")
    .filter(Boolean)
    .map((one) => one.split("=") as [string, string]);
  return { name, ...Object.fromEntries(pairs.map(([key, value]) => [key, Number(value)])) };
}
