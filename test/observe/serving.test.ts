import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { idempotent } from "../../src/adapters/fetch.ts";
import { sameToken } from "../../src/http/token.ts";
import { createLatchkey } from "../../src/index.ts";
import { prometheusMetrics, serveMetrics } from "../../src/observe/prometheus.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { parseExposition } from "./exposition-parser.ts";

const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

const single = () => createLatchkey({ store: memoryStore(), tenant: "single" });

async function served(options: { readonly token?: string } = {}) {
  const server = await serveMetrics(single(), { port: 0, ...options });
  closers.push(() => server.close());
  return (path: string, init?: RequestInit) => fetch(server.url + path, init);
}

describe("the metrics server", () => {
  it("serves a page that a strict reader takes, and nothing but that and its health", async () => {
    const get = await served();
    const page = await get("/metrics");
    expect(page.status).toBe(200);
    expect(page.headers.get("content-type")).toBe("text/plain; version=0.0.4; charset=utf-8");
    expect(parseExposition(await page.text()).has("api_idempotency_reserve_created_total")).toBe(true);
    expect((await get("/metrics?name=x")).status).toBe(200);
    expect((await get("/")).status).toBe(404);
    expect((await get("/metrics/more")).status).toBe(404);
    expect((await get("/metrics", { method: "POST" })).status).toBe(405);
    const head = await get("/metrics", { method: "HEAD" });
    expect([head.status, await head.text()]).toEqual([200, ""]);
    const health = await get("/healthz");
    expect([health.status, await health.json()]).toEqual([
      200,
      { status: "ok", store: "memory", breaker: "closed" },
    ]);
  });

  it("is not ready while the breaker is open, and its gauge says so even if it opened before", async () => {
    const store = Object.assign(memoryStore(), { reserve: () => Promise.reject(new Error("down")) });
    const latchkey = createLatchkey({ store, tenant: "single", breaker: { minCalls: 2 } });
    const send = () => latchkey.run({ tenant: "acme", key: "a" }, () => "done");
    while (latchkey.health().breaker !== "open") await send().catch(() => {});
    const server = await serveMetrics(latchkey, { port: 0 });
    closers.push(() => server.close());
    const health = await fetch(`${server.url}/healthz`);
    expect([health.status, await health.json()]).toMatchObject([503, { status: "unavailable" }]);
    const page = parseExposition(await (await fetch(`${server.url}/metrics`)).text());
    expect(page.get("api_idempotency_breaker_state")?.samples).toMatchObject([{ value: 2 }]);
  });

  it("with a token, tells nothing to whoever does not have it", async () => {
    const get = await served({ token: "s3cret" });
    const as = (authorization: string) => get("/metrics", { headers: { authorization } });
    for (const refused of [
      await get("/metrics"),
      await as("Bearer wrong"),
      await as("Bearer s3cret2"),
      await as("Basic s3cret"),
      await as("s3cret"),
    ]) {
      expect([refused.status, await refused.text()]).toEqual([401, ""]);
      expect(refused.headers.get("www-authenticate")).toBe("Bearer");
    }
    expect((await as("Bearer s3cret")).status).toBe(200);
    expect((await as("bearer s3cret")).status).toBe(200);
    expect((await get("/healthz")).status).toBe(200);
  });

  it("listens on this machine only, unless it is told otherwise", async () => {
    const server = await serveMetrics(single(), { port: 0 });
    closers.push(() => server.close());
    expect(server.url).toBe(`http://127.0.0.1:${server.port}`);
  });

  it("says so when its port is taken or is none", async () => {
    const latchkey = single();
    const server = await serveMetrics(latchkey, { port: 0 });
    closers.push(() => server.close());
    await expect(serveMetrics(latchkey, { port: server.port })).rejects.toThrow(/EADDRINUSE/);
    await expect(serveMetrics(latchkey, { port: 70_000 })).rejects.toThrow(/port is 70000 and must be/);
    await server.close();
    closers.pop();
    expect(latchkey.engine.events.areHeard).toBe(false);
  });
});

describe("metrics in an application", () => {
  it("the handler answers wherever it is mounted, and refusals are counted by their code", async () => {
    const latchkey = createLatchkey({
      store: memoryStore(),
      tenant: (request) => request.header("x-tenant"),
      requestBytesMax: 20,
      lateArrivals: "reject",
    });
    const metrics = prometheusMetrics(latchkey);
    const server = createServer(metrics.handler).listen(0, "127.0.0.1");
    closers.push(() => server.close());
    await new Promise((resolve) => server.once("listening", resolve));
    const protect = idempotent(latchkey)(() => new Response("ok"));
    const send = (headers: Record<string, string>, body = "{}") =>
      protect(new Request("http://x/", { method: "POST", headers, body }));
    const json = { "content-type": "application/json" };
    const old = "00000000-0000-7000-8000-000000000001";
    const now = `${Date.now()
      .toString(16)
      .padStart(12, "0")
      .replace(/^(.{8})/, "$1-")}-7000-8000-000000000001`;
    await send({});
    await send({ "idempotency-key": "an odd key" });
    await send({ "idempotency-key": "not-a-uuid", "x-tenant": "acme" });
    await send({ "idempotency-key": old, "x-tenant": "acme" });
    await send({ "idempotency-key": now });
    await send({ "idempotency-key": now, "x-tenant": "acme" }, `{"a":"${"x".repeat(30)}"}`);
    await send({ "idempotency-key": now, "x-tenant": "acme", ...json }, `{"a":1,"a":2}`);
    // What the store has decided is counted as that.
    await send({ "idempotency-key": now, "x-tenant": "acme", ...json }, `{"a":1}`);
    await send({ "idempotency-key": now, "x-tenant": "acme", ...json }, `{"a":2}`);

    const page = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/anything`);
    const refused = parseExposition(await page.text()).get("api_idempotency_refused_total")?.samples ?? [];
    const counts = refused.filter(({ value }) => value > 0).map(({ labels, value }) => [labels.code, value]);
    expect(Object.fromEntries(counts)).toEqual({
      "key-missing": 1,
      "key-invalid": 2,
      "late-arrival": 1,
      "tenant-missing": 1,
      "body-too-large": 1,
      "body-ambiguous": 1,
    });
  });
});

describe("tokens", () => {
  it("are the same only if every character is", () => {
    expect(sameToken("token", "token")).toBe(true);
    for (const other of ["", "t", "tokem", "Token", "token ", "tokentoken"]) {
      expect(sameToken("token", other)).toBe(false);
    }
  });
});
