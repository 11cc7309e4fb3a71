import { Agent } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { describe, expect, it, onTestFinished } from "vitest";
import { send } from "../adapters/client.ts";
import { deferred } from "../support/deferred.ts";
import { countingService, gateway, json, service, settingsOf } from "./support.ts";

/** A service that answers when it is told to. */
async function waitingService(name: string) {
  const waiting: (() => void)[] = [];
  const upstream = await service(async (_, res) => {
    await new Promise<void>((resolve) => waiting.push(resolve));
    json(res, 201, { from: name });
  });
  return {
    ...upstream,
    waiting,
    go: () => {
      for (const resolve of waiting.splice(0)) resolve();
    },
  };
}

describe("a reload", () => {
  it("takes over routes, policies, tenants, limits and upstream for new requests", async () => {
    const first = await countingService();
    const second = await service((_, res) => json(res, 201, { from: "second" }));
    const { gateway: running, url, log } = await gateway(settingsOf(first.url));
    expect((await send(url, { key: "a", json: {} })).text).toBe('{"charge":1}');
    expect((await send(url, { key: null, json: {} })).status).toBe(400);

    await running.reload(
      settingsOf(
        second.url,
        `tenant: header:X-Account
defaults: { mismatchStatus: 409, requestBytesMax: 10 }
limits: { lookUps: { max: 4, perMs: 1m } }
routes:
  - { path: /open, protect: false }
`,
      ),
    );

    const headers = { "x-account": "acme" };
    expect((await send(url, { key: "a", json: {} })).status).toBe(401);
    expect((await send(url, { key: "a", json: {}, headers })).text).toBe('{"from":"second"}');
    expect((await send(url, { key: "a", json: { b: 1 }, headers })).status).toBe(409);
    expect((await send(url, { key: "b", json: "far too long", headers })).status).toBe(413);
    expect((await send(url, { path: "/open", key: null, json: {} })).status).toBe(201);
    await expect
      .poll(async () => (await send(url, { key: "a", json: {}, headers })).status, { timeout: 5_000 })
      .toBe(429);
    expect(first.got).toHaveLength(1);
    expect(log.map(({ event }) => event)).toContain("gateway_reloaded");

    // And what is left out of the next one is as it is by default, not as it was.
    await running.reload(settingsOf(second.url, "limits: {}\n"));
    expect((await send(url, { key: "c", json: {} })).status).toBe(201);
    expect((await send(url, { key: "c", json: { b: 1 } })).status).toBe(422);
    expect((await send(url, { key: "d", json: "far too long" })).status).toBe(201);
  });

  it("does not pass on, attempt after attempt, what a route has accepted that is not protected any more", async () => {
    let isReady = false;
    const upstream = await service((_, res) => json(res, isReady ? 201 : 503, {}));
    const settings = (protect: string) =>
      settingsOf(
        upstream.url,
        `statusPath: /idempotency
routes: [{ path: /charges, methods: [POST], protect: ${protect} }]
workers: { completer: { intervalMs: 10, backoff: { baseMs: 10, capMs: 10 } } }
`,
      );
    const { gateway: running, url } = await gateway(settings("{ onInFlight: accept }"));
    let refused = 0;
    running.latchkey.subscribe(({ type }) => {
      if (type === "worker_error") refused += 1;
    });
    expect((await send(url, { json: {} })).status).toBe(202);
    await running.reload(settings("false"));
    const before = upstream.got.length;
    isReady = true;
    await expect.poll(() => refused, { timeout: 5_000 }).toBeGreaterThan(2);
    expect(upstream.got).toHaveLength(before);

    await running.reload(settings("{ onInFlight: accept }"));
    await expect.poll(() => upstream.got.length, { timeout: 5_000 }).toBe(before + 1);
    await expect
      .poll(async () => (await send(url, { json: {} })).headers["idempotency-replayed"], { timeout: 5_000 })
      .toBe("true");
    expect(upstream.got).toHaveLength(before + 1);
  });

  it("lets requests end by the old one that have yet to be sent: a body, or who is calling, is waited for", async () => {
    const old = await service((_, res) => json(res, 201, { from: "old" }));
    const next = await service((_, res) => json(res, 201, { from: "next" }));
    const asked: (() => void)[] = [];
    const keys = await service(async (_, res) => {
      await new Promise<void>((resolve) => asked.push(resolve));
      json(res, 200, { keys: [jwk] });
    });
    const { publicKey, privateKey } = await generateKeyPair("ES256");
    const jwk = { ...(await exportJWK(publicKey)), alg: "ES256", kid: "1" };
    const token = await new SignJWT({ sub: "acme" })
      .setProtectedHeader({ alg: "ES256", kid: "1" })
      .sign(privateKey);
    const { gateway: running, url } = await gateway(
      settingsOf(old.url, `tenant: jwt:sub\njwt: { jwks: "${keys.url}", algorithms: [ES256] }\n`),
    );
    const headers = { authorization: `Bearer ${token}` };
    const unknownCaller = send(url, { key: "a", json: {}, headers });
    await expect.poll(() => asked.length).toBe(1);
    await running.reload(settingsOf(old.url));
    const half = deferred();
    const slow = send(url, {
      key: "b",
      chunks: (async function* () {
        yield "a";
        await half;
        yield "b";
      })(),
    });
    await sleep(50);
    await running.reload(settingsOf(next.url));
    asked[0]?.();
    half.resolve();

    expect((await unknownCaller).text).toBe('{"from":"old"}');
    expect((await slow).text).toBe('{"from":"old"}');
    expect((await send(url, { key: "c", json: {} })).text).toBe('{"from":"next"}');
  });

  it("lets requests that are under way end by the old one", async () => {
    const old = await waitingService("old");
    const next = await waitingService("next");
    const { gateway: running, url } = await gateway(settingsOf(old.url));
    const protectedOne = send(url, { key: "a", json: {} });
    const plain = send(url, { method: "PUT", key: null, json: {} });
    await expect.poll(() => old.waiting.length).toBe(2);

    await running.reload(settingsOf(next.url));
    const later = send(url, { key: "b", json: {} });
    await expect.poll(() => next.waiting.length).toBe(1);
    // A duplicate of what the old one began is known as one.
    expect((await send(url, { key: "a", json: {} })).status).toBe(409);
    old.go();
    next.go();

    expect([(await protectedOne).text, (await plain).text, (await later).text]).toEqual([
      '{"from":"old"}',
      '{"from":"old"}',
      '{"from":"next"}',
    ]);
    expect((await send(url, { key: "a", json: {} })).headers["idempotency-replayed"]).toBe("true");
  });

  it("under load loses nothing, and executes nothing twice", async () => {
    const charges = new Map<string, number>();
    const charging = () =>
      service(async ({ headers }, res) => {
        const key = String(headers["idempotency-key"]);
        charges.set(key, (charges.get(key) ?? 0) + 1);
        await sleep(5);
        json(res, 201, { key });
      });
    const services = await Promise.all([charging(), charging()]);
    const [first, second] = services.map(({ url }) => url) as [string, string];
    const { gateway: running, url } = await gateway(settingsOf(first));
    const agent = new Agent({ keepAlive: true });
    onTestFinished(() => agent.destroy());

    let isOver = false;
    const odd: string[] = [];
    let sent = 0;
    const client = async (name: number) => {
      for (let number = 0; !isOver; number += 1) {
        const key = `${name}-${number}`;
        // Each twice at once: one executes, and the other one waits for its answer.
        const answers = await Promise.all([0, 1].map(() => send(url, { key, json: {}, agent })));
        sent += 1;
        for (const { status, text } of answers) {
          if (status !== 201 || text !== JSON.stringify({ key })) odd.push(`${key}: ${status} ${text}`);
        }
      }
    };
    const waiting = "defaults: { onInFlight: wait }\n";
    await running.reload(settingsOf(first, waiting));
    const clients = [0, 1, 2, 3].map(client);
    for (let round = 0; round < 20 || sent < 40; round += 1) {
      await running.reload(settingsOf(round % 2 === 0 ? second : first, `${waiting}drainMs: ${round + 1}\n`));
      await sleep(25);
    }
    isOver = true;
    await Promise.all(clients);

    expect(odd).toEqual([]);
    expect(charges.size).toBe(sent);
    expect([...charges.values()].every((count) => count === 1)).toBe(true);
    for (const { got } of services) expect(got.length).toBeGreaterThan(0);
  });

  it("changes nothing if it differs in what only a restart can change, and names that", async () => {
    const upstream = await countingService();
    const { gateway: running, url } = await gateway(settingsOf(upstream.url));

    const reloading = running.reload(
      settingsOf(
        "http://127.0.0.1:1",
        "listen: { port: 1 }\nstore: sqlite:./other.db\nstatusPath: /status\ndefaults: { profile: stripe }\n",
      ),
    );

    await expect(reloading).rejects.toThrow(
      "nothing was changed: listen, store, statusPath, defaults.profile differ, which only a restart can change",
    );
    expect((await send(url, { json: {} })).status).toBe(201);
  });

  it("changes nothing if the store cannot keep it", async () => {
    const upstream = await countingService();
    const { gateway: running, url } = await gateway(settingsOf(upstream.url));
    const good = settingsOf("http://127.0.0.1:1");
    const bad = { ...good, config: { ...good.config, defaults: { onCrash: "resume" as const } } };

    await expect(running.reload(bad)).rejects.toThrow(/this store forgets everything/);
    expect((await send(url, { json: {} })).status).toBe(201);
    await running.reload(settingsOf(upstream.url, "unmatched: pass\nroutes: [{ path: /charges }]\n"));
    expect((await send(url, { path: "/other", key: null, json: {} })).status).toBe(201);
  });

  it("asks about outcomes of the old one by the new one", async () => {
    const losing = await service((_, res) => res.destroy());
    const asked = await service((_, res) => json(res, 200, { from: "ledger" }));
    const route = (url: string) => `
routes:
  - name: charges
    path: /charges
    protect: { reconcileAfterMs: 200 }
    reconcile: { url: "${url}/{key}", answerStatus: 201 }
workers: { reconciler: { intervalMs: 20, backoff: { baseMs: 20, capMs: 20 } } }
`;
    const { gateway: running, url } = await gateway(settingsOf(losing.url, route("http://127.0.0.1:1")));
    await send(url, { json: {} });

    await running.reload(settingsOf(losing.url, route(asked.url)));
    await expect
      .poll(async () => (await send(url, { json: {} })).text, { timeout: 5_000 })
      .toBe('{"from":"ledger"}');
  });
});
