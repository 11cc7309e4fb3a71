import { describe, expect, it } from "vitest";
import { idempotent, statusResource } from "../../src/adapters/fetch.ts";
import { asRecorded, createLatchkey, type LatchkeyOptions, type RoutePolicy } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock } from "../../src/testing/index.ts";

function service(
  options: Partial<LatchkeyOptions> = {},
  handler?: (request: Request) => Response | Promise<Response>,
  route: RoutePolicy<Request> = {},
) {
  const clock = manualClock({ startMs: Date.UTC(2026, 5, 1) });
  const store = memoryStore({ clock: clock.now });
  const latchkey = createLatchkey({
    store,
    tenant: "single",
    statusPath: "/status",
    runtime: clock,
    ...options,
  });
  let runs = 0;
  const protect = idempotent(
    latchkey,
    route,
  )((request) => {
    runs += 1;
    return handler?.(request) ?? Response.json({ runs }, { status: 201 });
  });
  const status = statusResource(latchkey);
  return {
    clock,
    store,
    latchkey,
    runs: () => runs,
    post: (key: string, init: RequestInit = {}) =>
      protect(
        new Request("http://x/charges", {
          method: "POST",
          ...init,
          headers: { "idempotency-key": key, ...init.headers },
        }),
      ),
    status: (key: string) => status(new Request(`http://x/status/${key}`)),
  };
}

/** A UUID version 7 that was made at this time. */
function uuidV7(ms: number): string {
  const time = ms.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-000000000001`;
}

async function codeOf(response: Response): Promise<string> {
  return ((await response.json()) as { code: string }).code;
}

const day = 24 * 3_600_000;

describe("late arrivals", () => {
  it("are refused when the key is older than answers are kept, and nothing runs", async () => {
    const api = service({ lateArrivals: "reject" });
    const late = await api.post(uuidV7(api.clock.now() - day - 1000));
    expect(late.status).toBe(412);
    expect(await codeOf(late)).toBe("late-arrival");
    expect(api.runs()).toBe(0);
    expect((await api.post(uuidV7(api.clock.now() - day + 1000))).status).toBe(201);
  });

  it("cannot be told from keys without a time, so those are refused", async () => {
    const refused = await service({ lateArrivals: "reject" }).post("just-a-key");
    expect(refused.status).toBe(400);
    expect(await codeOf(refused)).toBe("key-invalid");
  });

  it("cannot be disguised by a key from the future", async () => {
    const api = service({ lateArrivals: "reject" });
    expect((await api.post(uuidV7(api.clock.now() + 60_000))).status).toBe(201);
    const future = await api.post(uuidV7(api.clock.now() + 3 * day));
    expect(future.status).toBe(400);
    expect(api.runs()).toBe(1);
  });

  it("are allowed unless a route refuses them", async () => {
    const api = service();
    expect((await api.post(uuidV7(api.clock.now() - 30 * day))).status).toBe(201);
  });
});

describe("a worker that goes on under the session of the record", () => {
  it("is told that the store did not answer, and not that its key is somebody else's", async () => {
    const binding = ({ headers }: Request) =>
      headers.has("x-worker") ? asRecorded : (headers.get("x-session") ?? undefined);
    const api = service({ onInFlight: "accept" }, undefined, { binding });
    await api.post("k", { headers: { "x-session": "s1" } });
    const claim = () => api.post("k", { headers: { "x-worker": "yes", "latchkey-claim": "true" } });
    const { read } = api.store;
    api.store.read = () => Promise.reject(new Error("a hiccup"));
    const refused = await claim();
    expect(refused.status).toBe(503);
    expect(await codeOf(refused)).toBe("store-unavailable");
    expect(api.runs()).toBe(0);
    api.store.read = read;
    expect((await claim()).status).toBe(201);
  });
});

describe("the status resource", () => {
  it.each([
    ["reconcile", "outcome-unknown"],
    ["retry", "no-answer"],
  ] as const)(
    "does not say that a request runs whose owner is dead, under onCrash %s",
    async (onCrash, code) => {
      const api = service({ onCrash }, () => new Promise<Response>(() => {}));
      void api.post("k");
      await api.clock.advance(1);
      expect((await api.status("k")).status).toBe(202);
      api.latchkey.engine.close();
      await api.clock.advance(day);
      const dead = await api.status("k");
      expect(dead.status).toBe(409);
      expect(await codeOf(dead)).toBe(code);
    },
  );

  it("finds nothing under a name that is no key", async () => {
    for (const name of ["", "%", "%00", "nobody"])
      expect((await service().status(name)).status, name).toBe(404);
  });
});

describe("an outcome that nobody knows", () => {
  it("is asked about again after half a minute, not at once", async () => {
    const api = service(
      { onServerError: "reconcile", reconcileAfterMs: 0 },
      () => new Response(null, { status: 500 }),
    );
    await api.post("k");
    const unknown = await api.post("k");
    expect(await codeOf(unknown)).toBe("outcome-unknown");
    expect(unknown.headers.get("retry-after")).toBe("30");
  });
});

describe("what a Fetch handler cannot do", () => {
  it("a body that is longer than it says is too large all the same", async () => {
    const api = service({ requestBytesMax: 10 });
    const headers = { "content-length": "3" };
    const refused = await api.post("k", { body: "x".repeat(5000), headers });
    expect(refused.status).toBe(413);
    expect(api.runs()).toBe(0);
  });

  it("an error response is a failure, and is not stored", async () => {
    let fails = true;
    const api = service({}, () => (fails ? Response.error() : new Response("ok")));
    await expect(api.post("k")).rejects.toThrow(/status 0/);
    fails = false;
    expect(await (await api.post("k")).text()).toBe("ok");
  });
});
