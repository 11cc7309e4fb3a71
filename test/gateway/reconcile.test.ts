import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { send } from "../adapters/client.ts";
import { gateway, json, type Received, service, settingsOf } from "./support.ts";

type Question = (received: Received, res: ServerResponse) => unknown;

/** A service that takes a charge and breaks off before it answers, and that is then asked what became of it. */
async function losingService(answerQuestion: Question) {
  let isLosing = true;
  const upstream = await service(({ method, ...rest }, res) => {
    if (method === "GET") return answerQuestion({ method, ...rest }, res);
    if (isLosing) return res.destroy();
    return json(res, 201, { charge: "second" });
  });
  const charges = () => upstream.got.filter(({ method }) => method === "POST");
  const questions = () => upstream.got.filter(({ method }) => method === "GET");
  const recover = () => {
    isLosing = false;
  };
  return { url: upstream.url, charges, questions, recover };
}

const route = (reconcile: string, policy = "") => `
routes:
  - name: charges
    path: /charges
    protect: { reconcileAfterMs: 0 ${policy} }
    reconcile: { url: "/charges/by-key/{key}" ${reconcile} }
workers:
  reconciler: { intervalMs: 20, attemptsMax: 3, backoff: { baseMs: 20, capMs: 20 } }
`;

describe("an outcome that is not known is asked about", () => {
  it("and the answer is what retries get, if it was executed", async () => {
    const upstream = await losingService((_, res) => {
      res.writeHead(200, {
        "content-type": "application/json",
        "x-charge": "ch_1",
        "set-cookie": "a=b",
        etag: '"1"',
      });
      res.end('{"charge":"first"}');
    });
    const { gateway: running, url } = await gateway(
      settingsOf(
        upstream.url,
        route(
          `, answerStatus: 201, headers: { authorization: "Bearer $\{TOKEN}" }`,
          ", replayHeaders: [X-Charge]",
        ),
        { TOKEN: "swordfish" },
      ),
    );

    expect((await send(url, { json: {} })).status).toBe(502);
    await expect.poll(async () => (await send(url, { json: {} })).status).toBe(201);

    const retry = await send(url, { json: {} });
    expect([retry.status, retry.text, retry.headers["idempotency-replayed"]]).toEqual([
      201,
      '{"charge":"first"}',
      "true",
    ]);
    expect(retry.headers).toMatchObject({
      "content-type": "application/json",
      "x-charge": "ch_1",
      etag: '"1"',
    });
    expect(retry.headers["set-cookie"]).toBeUndefined();
    expect(upstream.charges()).toHaveLength(1);
    expect(upstream.questions().map(({ path, headers }) => [path, headers.authorization])).toEqual([
      ["/charges/by-key/key-1", "Bearer swordfish"],
    ]);
    const audit = await running.latchkey.audit();
    expect(audit.map(({ by, to }) => [by, to])).toContainEqual(["reconciler", "completed"]);
  });

  it("without telling anybody else what else is in the address", async () => {
    const upstream = await losingService((_, res) => json(res, 500, {}));
    const {
      gateway: running,
      url,
      log,
    } = await gateway(settingsOf(upstream.url, route("").replace("{key}", "{key}?token=swordfish")));

    expect((await send(url, { json: {} })).status).toBe(502);
    const recordOf = async () => (await running.latchkey.inspect({ tenant: "single", key: "key-1" })).record;
    await expect
      .poll(recordOf, { timeout: 8_000 })
      .toMatchObject({ reason: expect.stringMatching(/\/charges\/by-key\/\{key\}\?… answered 500/) });
    expect(upstream.questions()[0]?.path).toBe("/charges/by-key/key-1?token=swordfish");
    expect(JSON.stringify([await recordOf(), log])).not.toContain("swordfish");
  });

  it("and a retry executes it, if it was not", async () => {
    const upstream = await losingService((_, res) => json(res, 404, {}));
    const { url } = await gateway(settingsOf(upstream.url, route("")));

    expect((await send(url, { json: {} })).status).toBe(502);
    upstream.recover();
    await expect.poll(async () => (await send(url, { json: {} })).status).toBe(201);

    expect((await send(url, { json: {} })).text).toBe('{"charge":"second"}');
    expect(upstream.charges()).toHaveLength(2);
  });

  const says: Record<string, [Question, RegExp]> = {
    "answers 500": [
      (_, res) => json(res, 500, {}),
      /answered 500, which is neither in executed nor in notExecuted/,
    ],
    "redirects to somebody else": [
      (_, res) => res.writeHead(302, { location: "/charges" }).end(),
      /answered 302, which is neither/,
    ],
    "takes too long": [(_, res) => sleep(400).then(() => json(res, 200, {})), /no answer within 100 ms/],
    "breaks off": [(_, res) => res.destroy(), /could not be asked: UND_ERR_SOCKET/],
    "breaks off in its answer": [
      (_, res) => {
        res.writeHead(200, { "content-length": "100" }).write("half");
        setTimeout(() => res.destroy(), 20);
      },
      /broke off its answer/,
    ],
    "answers with more than is kept": [
      (_, res) => json(res, 200, "x".repeat(5000)),
      /more than the 1000 bytes/,
    ],
  };
  for (const [what, [answer, reason]] of Object.entries(says)) {
    it(`again and again, and then by an operator, if upstream ${what}`, async () => {
      const upstream = await losingService(answer);
      const { gateway: running, url } = await gateway(
        settingsOf(upstream.url, route(", timeoutMs: 100", ", responseBytesMax: 1000")),
      );

      expect((await send(url, { json: {} })).status).toBe(502);
      const recordOf = async () =>
        (await running.latchkey.inspect({ tenant: "single", key: "key-1" })).record;
      await expect
        .poll(recordOf, { timeout: 8_000 })
        .toMatchObject({ state: "unknown", reason: expect.stringMatching(reason) });

      expect(await recordOf()).toMatchObject({ reason: expect.stringMatching(/^after 3 questions/) });
      upstream.recover();
      expect((await send(url, { json: {} })).status).toBe(409);
      expect(upstream.charges()).toHaveLength(1);
      expect(upstream.questions()).toHaveLength(3);
    });
  }

  it("by a key that cannot lead anywhere else", async () => {
    const upstream = await losingService((_, res) => json(res, 200, {}));
    const { gateway: running, url } = await gateway(
      settingsOf(
        upstream.url,
        route("").replace("/charges/by-key/{key}", "/of/{tenant}/{route}/{key}?key={key}"),
      ),
    );
    const keys = ["a/../b?c=d&e#f", "ü ñ".normalize(), "..", "100%"];
    const encoded = keys.map((key) => (/^[\x20-\x7e]*$/.test(key) ? `"${key}"` : undefined));
    for (const key of encoded) if (key !== undefined) await send(url, { key, json: {} });

    await expect.poll(() => upstream.questions().length).toBe(2);
    expect(
      upstream
        .questions()
        .map(({ path }) => path)
        .sort(),
    ).toEqual([
      "/of/single/charges/100%25?key=100%25",
      "/of/single/charges/a%2F..%2Fb%3Fc%3Dd%26e%23f?key=a%2F..%2Fb%3Fc%3Dd%26e%23f",
    ]);
    // Two dots are a way up, however they are encoded: an operator has to look.
    await expect
      .poll(async () => (await running.latchkey.inspect({ tenant: "single", key: ".." })).record)
      .toMatchObject({ state: "unknown", reason: expect.stringMatching(/cannot be put into an address/) });
  });

  it("at another service, if that is what is configured", async () => {
    const upstream = await losingService((_, res) => json(res, 500, {}));
    const ledger = await service((_, res) => json(res, 200, { of: "ledger" }));
    const { url } = await gateway(
      settingsOf(upstream.url, route("").replace("/charges/by-key", `${ledger.url}/entries`)),
    );

    await send(url, { json: {} });
    await expect.poll(async () => (await send(url, { json: {} })).text).toBe('{"of":"ledger"}');
    expect(ledger.got.map(({ method, path }) => `${method} ${path}`)).toEqual(["GET /entries/key-1"]);
    expect(upstream.questions()).toEqual([]);
  });
});
