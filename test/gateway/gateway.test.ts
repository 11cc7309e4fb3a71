import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { startGateway } from "../../src/gateway/gateway.ts";
import { jsonLogger } from "../../src/gateway/log.ts";
import { digestOf } from "../../src/gateway/tenants.ts";
import { open, readAnswer, send } from "../adapters/client.ts";
import { deferred } from "../support/deferred.ts";
import { countingService, gateway, json, service, settingsOf } from "./support.ts";

describe("a gateway", () => {
  it("protects POST and PATCH of everything, and passes the rest", async () => {
    const upstream = await countingService();
    const { url } = await gateway(settingsOf(upstream.url));

    for (const method of ["POST", "PATCH"]) {
      expect([method, (await send(url, { method, key: null, json: {} })).status]).toEqual([method, 400]);
    }
    expect(upstream.got).toHaveLength(0);
    for (const method of ["GET", "PUT", "DELETE"]) {
      expect([method, (await send(url, { method, key: null })).status]).toEqual([method, 201]);
    }
    const first = await send(url, { json: {} });
    const retry = await send(url, { json: {} });
    expect([retry.text, retry.headers["idempotency-replayed"]]).toEqual([first.text, "true"]);
    expect(upstream.got.at(-1)?.headers["idempotency-key"]).toBe("key-1");
  });

  it("passes what no route names, if that is said", async () => {
    const upstream = await countingService();
    const { url } = await gateway(
      settingsOf(upstream.url, "unmatched: pass\nroutes: [{ path: /charges, methods: [PUT] }]\n"),
    );

    expect((await send(url, { path: "/other", key: null, json: {} })).status).toBe(201);
    expect((await send(url, { path: "/charges", key: null, json: {} })).status).toBe(201);
    expect((await send(url, { method: "PUT", path: "/charges", key: null })).status).toBe(400);
    expect((await send(url, { method: "PUT", path: "/Charges/", key: null })).status).toBe(400);
  });

  it("does not pass on what could be read as another path", async () => {
    const upstream = await countingService();
    const { url } = await gateway(
      settingsOf(upstream.url, "routes:\n  - { path: /open/*, protect: false }\n  - path: /charges\n"),
    );

    for (const path of ["/open/%2e%2e/charges", "/open//charges", "/open/..%2fcharges", "/open\\charges"]) {
      const { port, hostname } = new URL(url);
      const socket = connect(Number(port), hostname);
      socket.end(`POST ${path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
      let text = "";
      for await (const part of socket) text += part;
      expect([path, text.split("\r\n")[0]]).toEqual([path, "HTTP/1.1 400 Bad Request"]);
    }
    expect(upstream.got).toHaveLength(0);
  });

  it("executes what it has accepted, for its tenant, and says what became of it", async () => {
    const upstream = await service(({ headers }, res) =>
      json(res, 201, { for: headers["x-account"] ?? null }),
    );
    const { url } = await gateway(
      settingsOf(
        upstream.url,
        `tenant: header:X-Account
statusPath: /idempotency
defaults: { keepRequestHeaders: [X-Account] }
routes: [{ path: /charges, protect: { onInFlight: accept } }]
workers: { completer: { intervalMs: 20 } }
`,
      ),
    );
    const headers = { "x-account": "acme" };

    const accepted = await send(url, { json: { amount: 1 }, headers });
    expect([accepted.status, accepted.headers.location]).toEqual([202, "/idempotency/key-1"]);
    const ask = (account: string) =>
      send(url, { method: "GET", path: "/idempotency/key-1", key: null, headers: { "x-account": account } });
    await expect.poll(async () => (await ask("acme")).status, { timeout: 5_000 }).toBe(201);

    expect((await ask("acme")).text).toBe('{"for":"acme"}');
    expect((await ask("globex")).status).toBe(404);
    expect((await send(url, { method: "GET", path: "/idempotency/key-1", key: null })).status).toBe(401);
    expect(upstream.got).toHaveLength(1);
    expect(upstream.got[0]?.body).toBe('{"amount":1}');
    const names = Object.keys(upstream.got[0]?.headers ?? {});
    expect(names.filter((name) => name.startsWith("latchkey"))).toEqual([]);
  });

  it("takes what is encoded in a key for the key where it is asked for, and for a path everywhere else", async () => {
    const upstream = await countingService();
    const { url } = await gateway(settingsOf(upstream.url, "statusPath: /idempotency\n"));
    const ask = async (path: string) => {
      const socket = connect(Number(new URL(url).port), "127.0.0.1");
      socket.end(`GET ${path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n`);
      let text = "";
      for await (const part of socket) text += part;
      return Number(text.split(" ")[1]);
    };
    await send(url, { key: "order/47.11?", json: {} });

    expect(await ask("/idempotency/order%2F47.11%3F")).toBe(201);
    expect(await ask("/idempotency/..%2Fcharges")).toBe(404);
    for (const path of ["/idempotency/../charges", "/idempotency/%zz", "/charges%2F1", "/idempotency%2Fa"]) {
      expect([path, await ask(path)]).toEqual([path, 400]);
    }
    expect(upstream.got).toHaveLength(1);
  });

  it("believes nobody else who claims to be its worker", async () => {
    const upstream = await countingService();
    const { url } = await gateway(settingsOf(upstream.url, "tenant: header:X-Account\n"));
    const headers = { "latchkey-dispatch": "0".repeat(64), "latchkey-dispatch-tenant": "acme" };
    const claim = { ...headers, "latchkey-claim": "true" };

    expect((await send(url, { json: {}, headers: claim })).status).toBe(401);
    expect((await send(url, { method: "PUT", key: null, headers: claim })).status).toBe(400);
    expect(upstream.got).toHaveLength(0);
    await send(url, { method: "PUT", key: null, headers });
    const names = Object.keys(upstream.got[0]?.headers ?? {});
    expect(names.filter((name) => name.startsWith("latchkey"))).toEqual([]);
  });

  it("refuses what is over a tenant's limit, by 429", async () => {
    const upstream = await countingService();
    const { url } = await gateway(
      settingsOf(
        upstream.url,
        "limits: { newKeys: { max: 2, perMs: 1h }, tenants: { nobody: { newKeys: { max: 9, perMs: 1h } } } }\n",
      ),
    );

    const statuses: number[] = [];
    for (const key of ["a", "b", "c", "a"]) statuses.push((await send(url, { key, json: {} })).status);
    expect(statuses).toEqual([201, 201, 429, 201]);
    expect(upstream.got).toHaveLength(2);
  });

  it("lets a tenant have limits of its own, and everybody else those of all", async () => {
    const upstream = await countingService();
    const { url } = await gateway(
      settingsOf(
        upstream.url,
        `tenant: header:X-Account
limits:
  newKeys: { max: 2, perMs: 1h }
  tenants: { ${digestOf("acme")}: { newKeys: { max: 1, perMs: 1h } } }
`,
      ),
    );
    const statuses = async (account: string) => {
      const seen: number[] = [];
      for (const key of ["a", "b", "c"]) {
        seen.push((await send(url, { key, json: {}, headers: { "x-account": account } })).status);
      }
      return seen;
    };

    expect(await statuses("acme")).toEqual([201, 429, 429]);
    expect(await statuses("globex")).toEqual([201, 201, 429]);
  });

  it("answers its own paths itself: health, metrics, admin API, and nothing else below its prefix", async () => {
    const upstream = await countingService();
    const { url } = await gateway(
      settingsOf(
        upstream.url,
        `metrics: { path: /-/latchkey/metrics, token: scraper }
admin: { path: /-/latchkey/admin, operators: [{ name: ada, token: "${"a".repeat(16)}" }] }
`,
      ),
    );
    const get = (path: string, token?: string) =>
      send(url, {
        method: "GET",
        path: `/-/latchkey/${path}`,
        key: null,
        headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      });

    expect((await get("health")).status).toBe(200);
    expect(JSON.parse((await get("health")).text)).toEqual({
      status: "ok",
      store: "memory",
      breaker: "closed",
    });
    expect((await get("metrics")).status).toBe(401);
    await send(url, { json: {} });
    expect((await get("metrics", "scraper")).text).toMatch(/^api_idempotency_reserve_created_total 1$/m);
    expect((await get("admin/api/records")).status).toBe(401);
    expect((await get("admin/api/records", "a".repeat(16))).text).toContain("key-1");
    expect((await get("nothing")).status).toBe(404);
    expect((await send(url, { path: "/-/latchkey/charges", json: {} })).status).toBe(404);
    expect(upstream.got).toHaveLength(1);
  });

  it("opens metrics and admin API on ports of their own, and closes them", async () => {
    const upstream = await countingService();
    const { gateway: running } = await gateway(
      settingsOf(
        upstream.url,
        `metrics: { port: 0 }\nadmin: { port: 0, operators: [{ name: ada, token: "${"a".repeat(16)}" }] }\n`,
      ),
    );
    const { metrics = "", admin = "" } = running.urls;

    expect((await fetch(metrics)).status).toBe(200);
    const session = await fetch(new URL("/api/session", admin), {
      headers: { authorization: `Bearer ${"a".repeat(16)}` },
    });
    expect(await session.json()).toMatchObject({ operator: "ada" });
    await running.close();
    await expect(fetch(metrics)).rejects.toThrow();
    await expect(fetch(admin)).rejects.toThrow();
  });

  it("says that it is ill while the store's breaker is open", async () => {
    const upstream = await countingService();
    const { gateway: running, url } = await gateway(
      settingsOf(upstream.url, "breaker: { minCalls: 1, openMs: 1m }\nworkers: false\n"),
    );
    running.latchkey.store.reserve = () => Promise.reject(new Error("down"));

    expect((await send(url, { json: {} })).status).toBe(503);
    const health = await send(url, { method: "GET", path: "/-/latchkey/health", key: null });
    expect([health.status, JSON.parse(health.text).status]).toEqual([503, "unavailable"]);
    expect(upstream.got).toHaveLength(0);
  });

  it("does not pass on what its client has given up while the store was asked", async () => {
    const upstream = await countingService();
    const { gateway: running, url } = await gateway(
      settingsOf(upstream.url, "defaults: { onStoreDown: open }\nworkers: false\n"),
    );
    const asked = deferred();
    const down = deferred();
    running.latchkey.store.reserve = async () => {
      asked.resolve();
      await down;
      throw new Error("down");
    };
    const exchange = open(url, { json: {} });
    await asked;
    exchange.abort();
    await sleep(50);
    down.resolve();
    expect((await send(url, { key: "key-2", json: {} })).status).toBe(201);
    expect(upstream.got.map(({ headers }) => headers["idempotency-key"])).toEqual(["key-2"]);
    const before = performance.now();
    await running.close({ drainMs: 5_000 });
    expect(performance.now() - before).toBeLessThan(4_000);
  });

  it("waits at its end for what upstream has, although the client went before it was reserved", async () => {
    const asked = deferred();
    const reserved = deferred();
    const sent = deferred();
    const answered = deferred();
    const upstream = await service(async (_, res) => {
      sent.resolve();
      await answered;
      json(res, 201, {});
    });
    const { gateway: running, url } = await gateway(settingsOf(upstream.url));
    const { store } = running.latchkey;
    const reserve = store.reserve.bind(store);
    store.reserve = async (...args) => {
      asked.resolve();
      await reserved;
      return reserve(...args);
    };
    const exchange = open(url, { json: {} });
    await asked;
    exchange.abort();
    await sleep(50);
    reserved.resolve();
    await sent;
    const settled: string[] = [];
    running.latchkey.subscribe((event) => {
      if (event.type === "settled") settled.push(event.as);
    });
    const closing = running.close({ drainMs: 10_000 });
    await sleep(100);
    answered.resolve();
    await closing;
    expect(settled).toEqual(["completed"]);
  });

  it("logs its start with its address, one line of JSON for each, and no secret", async () => {
    const written: string[] = [];
    const upstream = await countingService();
    const token = "swordfish-swordfish";
    const running = await startGateway(
      settingsOf(
        upstream.url,
        `admin: { port: 0, operators: [{ name: ada, token: ${token} }] }\nhashKeys: ${"ab".repeat(32)}\n`,
      ),
      { logger: jsonLogger((line) => written.push(line)) },
    );
    await running.close();

    expect(written.map((line) => JSON.parse(line).event)).toEqual(["gateway_started", "gateway_stopped"]);
    expect(JSON.parse(written[0] ?? "")).toMatchObject({
      level: "info",
      url: expect.stringMatching(/^http:/),
    });
    expect(written.join("")).not.toMatch(/swordfish|abab/);
    expect(written.every((line) => line.endsWith("\n") && line.trim().split("\n").length === 1)).toBe(true);
  });
});

describe("a gateway that cannot be started", () => {
  it("rejects and leaves nothing open", async () => {
    const upstream = await countingService();
    const taken = await gateway(settingsOf(upstream.url));
    const settings = settingsOf(
      upstream.url,
      `listen: { port: ${taken.gateway.port} }\nmetrics: { port: 0 }\nadmin: { port: 0, operators: [{ name: a, token: "${"a".repeat(16)}" }] }\n`,
    );
    const before = process.getActiveResourcesInfo().filter((name) => name === "TCPServerWrap").length;

    await expect(startGateway(settings, { logger: jsonLogger(() => {}) })).rejects.toThrow(/EADDRINUSE/);
    await expect
      .poll(() => process.getActiveResourcesInfo().filter((name) => name === "TCPServerWrap").length)
      .toBeLessThanOrEqual(before);
  });

  it("says so if the store cannot be had, before a port is open", async () => {
    const settings = settingsOf("http://127.0.0.1:1", "store: postgres://nobody@127.0.0.1:1/nothing\n");
    await expect(startGateway(settings, { logger: jsonLogger(() => {}) })).rejects.toThrow(
      /the store does not answer as it must: .*ECONNREFUSED/,
    );
  });
});

describe("a gateway that is told to end", () => {
  it("finishes what is under way, also for a client that has gone, and takes no more", async () => {
    const answers = new Map<string, () => void>();
    const upstream = await service(async ({ headers }, res) => {
      await new Promise<void>((resolve) => answers.set(String(headers["idempotency-key"]), resolve));
      json(res, 201, { done: true });
    });
    const { gateway: running, url } = await gateway(settingsOf(upstream.url));
    const { store } = running.latchkey;
    const staying = open(url, { key: "a", json: {} });
    const plain = open(url, { method: "PUT", key: null, json: {} });
    const leaving = open(url, { key: "b", json: {} });
    await expect.poll(() => answers.size).toBe(3);
    leaving.abort();

    const closing = running.close({ drainMs: 10_000 });
    await expect(send(url, { key: "c", json: {} })).rejects.toThrow(/ECONNREFUSED/);
    for (const name of ["a", "undefined"]) answers.get(name)?.();
    expect((await readAnswer(await staying.response)).status).toBe(201);
    expect((await readAnswer(await plain.response)).status).toBe(201);
    // Whoever would see only clients has nothing to wait for any more.
    await sleep(200);
    answers.get("b")?.();
    await closing;
    for (const key of ["a", "b"]) {
      const { record } = await store.read({ scope: "single", key });
      expect([key, record?.state]).toEqual([key, "completed"]);
    }
  });

  it("does not wait for longer than it was told", async () => {
    const upstream = await service(() => new Promise<void>(() => {}));
    const { gateway: running, url } = await gateway(settingsOf(upstream.url));
    const waiting = open(url, { key: null, method: "PUT" });
    await expect.poll(() => upstream.got.length).toBe(1);

    const startedAt = performance.now();
    await running.close({ drainMs: 200 });
    expect(performance.now() - startedAt).toBeLessThan(5_000);
    await waiting.response.then(
      (response) => response.resume().statusCode,
      () => 0,
    );
  });
});
