import { hash } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { type IncomingMessage, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { exportJWK, generateKeyPair, importJWK, SignJWT } from "jose";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Sending, send } from "../adapters/client.ts";
import { countingService, gateway, json, service, settingsOf } from "./support.ts";

async function folder(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), "latchkey-tenants-"));
  onTestFinished(() => rm(made, { recursive: true }));
  return made;
}

describe("a tenant by a header", () => {
  it("has keys of its own, and without the header, or with two of them, nothing runs", async () => {
    const upstream = await countingService();
    const { url } = await gateway(settingsOf(upstream.url, "tenant: header:X-Account\n"));
    const as = (account: Record<string, string>, sending: Sending = {}) =>
      send(url, { json: {}, headers: account, ...sending });

    const first = await as({ "x-account": "acme" });
    expect([first.status, first.text]).toEqual([201, '{"charge":1}']);
    expect((await as({ "X-ACCOUNT": "acme" })).headers["idempotency-replayed"]).toBe("true");
    expect((await as({ "x-account": "globex" })).text).toBe('{"charge":2}');

    expect((await as({})).status).toBe(401);
    expect((await as({ "x-account": "" })).status).toBe(401);
    const twice = request(`${url}/charges`, {
      method: "POST",
      headers: { "idempotency-key": "key-2", "x-account": ["acme", "globex"] },
    }).end();
    const [answer] = (await once(twice, "response")) as [IncomingMessage];
    expect(answer.resume().statusCode).toBe(401);
    expect(upstream.got).toHaveLength(2);
  });

  it("is stored as a digest: nothing of the value is in the store or in the log", async () => {
    const file = join(await folder(), "latchkey.db");
    const upstream = await countingService();
    const credential = "Bearer swordfish-0123456789";
    const {
      gateway: running,
      url,
      log,
    } = await gateway(
      settingsOf(
        upstream.url,
        `store: sqlite:${file}\ntenant: header:Authorization\nlimits: { newKeys: { max: 5, perMs: 1s } }\n`,
      ),
    );

    expect((await send(url, { json: {}, headers: { authorization: credential } })).status).toBe(201);
    const tenant = `h.${hash("sha256", credential, "base64url")}`;
    expect((await running.latchkey.inspect({ tenant, key: "key-1" })).record?.state).toBe("completed");
    await running.close();

    const stored = Buffer.concat(
      await Promise.all([file, `${file}-wal`].map((name) => readFile(name).catch(() => Buffer.alloc(0)))),
    );
    expect(stored.includes("swordfish")).toBe(false);
    expect(JSON.stringify(log)).not.toContain("swordfish");
    expect(upstream.got[0]?.headers.authorization).toBe(credential);
  });
});

describe("a tenant by a token", () => {
  async function issuer(kid = "one") {
    const { publicKey, privateKey } = await generateKeyPair("RS256", { extractable: true });
    // It does not say for which algorithm it is, so that only the configuration does.
    const jwk = { ...(await exportJWK(publicKey)), kid, use: "sig" };
    const token = (
      claims: Record<string, unknown>,
      options: { exp?: string; aud?: string; iss?: string } = {},
    ) =>
      new SignJWT(claims)
        .setProtectedHeader({ alg: "RS256", kid })
        .setIssuer(options.iss ?? "https://issuer")
        .setAudience(options.aud ?? "payments")
        .setExpirationTime(options.exp ?? "5m")
        .sign(privateKey);
    const secretKey = await exportJWK(privateKey);
    return { jwk, token, secretKey };
  }

  const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

  it("is still known after a reload, although the keys cannot be fetched right now", async () => {
    const { jwk, token } = await issuer();
    let isUp = true;
    const keys = await service((_, res) => json(res, isUp ? 200 : 500, { keys: [jwk] }));
    const upstream = await countingService();
    const settings = (rest: string) =>
      settingsOf(
        upstream.url,
        `tenant: jwt:account\njwt: { jwks: "${keys.url}", algorithms: [RS256] }\n${rest}`,
      );
    const { gateway: running, url } = await gateway(settings(""));
    const status = async () =>
      (await send(url, { json: {}, headers: bearer(await token({ account: "acme" })) })).status;

    expect(await status()).toBe(201);
    isUp = false;
    await running.reload(settings("unmatched: protect\ndrainMs: 1s\n"));
    expect(await status()).toBe(201);
    expect(keys.got).toHaveLength(1);
  });

  it("is its claim, if the token is good; otherwise it is 401 and nothing runs", async () => {
    const { jwk, token, secretKey } = await issuer();
    const other = await issuer();
    const keys = await service((_, res) => json(res, 200, { keys: [jwk] }));
    const upstream = await countingService();
    const { gateway: running, url } = await gateway(
      settingsOf(
        upstream.url,
        `tenant: jwt:account
jwt: { jwks: "${keys.url}/jwks", algorithms: [RS256], issuer: "https://issuer", audience: payments }
`,
      ),
    );
    const status = async (headers: Record<string, string>) => (await send(url, { json: {}, headers })).status;

    expect(keys.got).toHaveLength(0);
    expect(await status(bearer(await token({ account: "acme" })))).toBe(201);
    expect(await status(bearer(await token({ account: "acme" })))).toBe(201);
    expect(await status({ authorization: `bearer ${await token({ account: 42 })}` })).toBe(201);
    expect(keys.got).toHaveLength(1);
    expect(upstream.got).toHaveLength(2);
    const { records } = await running.latchkey.list();
    expect(records.map(({ scope }) => scope).sort()).toEqual(["42", "acme"]);

    const [head = "", claims = ""] = (await token({ account: "acme" })).split(".");
    const unsigned = Buffer.from('{"alg":"none"}').toString("base64url");
    const hmac = await new SignJWT({ account: "acme" })
      .setProtectedHeader({ alg: "HS256" })
      .setIssuer("https://issuer")
      .setAudience("payments")
      .setExpirationTime("5m")
      .sign(Buffer.from(JSON.stringify(jwk)));
    const padded = await new SignJWT({ account: "acme" })
      .setProtectedHeader({ alg: "PS256", kid: "one" })
      .setIssuer("https://issuer")
      .setAudience("payments")
      .setExpirationTime("5m")
      .sign(await importJWK(secretKey, "PS256"));
    const bad = {
      "signed with the right key and an algorithm that is not named": bearer(padded),
      expired: bearer(await token({ account: "acme" }, { exp: "-1s" })),
      "for another audience": bearer(await token({ account: "acme" }, { aud: "elsewhere" })),
      "by another issuer": bearer(await token({ account: "acme" }, { iss: "https://another" })),
      "without its claim": bearer(await token({})),
      "with an object for a claim": bearer(await token({ account: { is: "acme" } })),
      "signed by somebody else": bearer(await other.token({ account: "acme" })),
      "without a signature": bearer(`${unsigned}.${claims}.`),
      "with half of it": bearer(`${head}.${claims}`),
      "signed with the public key": bearer(hmac),
      "with another scheme": { authorization: `Basic ${await token({ account: "acme" })}` },
      "that is none": bearer("swordfish"),
      missing: {},
    };
    for (const [what, headers] of Object.entries(bad)) {
      expect([what, await status(headers)]).toEqual([what, 401]);
    }
    expect(upstream.got).toHaveLength(2);
  });

  it("is known by a new key as soon as the issuer has one", async () => {
    const old = await issuer("old");
    const next = await issuer("new");
    let served = [old.jwk];
    const keys = await service((_, res) => json(res, 200, { keys: served }));
    const upstream = await countingService();
    const { url } = await gateway(
      settingsOf(
        upstream.url,
        `tenant: jwt:sub\njwt: { jwks: "${keys.url}/", algorithms: [RS256], audience: payments }\n`,
      ),
    );
    const status = async (token: string, key: string) =>
      (await send(url, { key, json: {}, headers: bearer(token) })).status;

    expect(await status(await old.token({ sub: "acme" }), "a")).toBe(201);
    served = [old.jwk, next.jwk];
    // Keys that nobody knows do not have them fetched at once, or anybody could.
    expect(await status(await next.token({ sub: "acme" }), "b")).toBe(401);
    expect(keys.got).toHaveLength(1);
    await expect
      .poll(async () => status(await next.token({ sub: "acme" }), "b"), { timeout: 10_000, interval: 500 })
      .toBe(201);
    expect(keys.got).toHaveLength(2);
  });

  it("is nobody's while the keys cannot be fetched: 503, nothing runs, and the retry is executed", async () => {
    const { jwk, token } = await issuer();
    let isDown = true;
    const keys = await service((_, res) => json(res, isDown ? 500 : 200, { keys: [jwk] }));
    const upstream = await countingService();
    const { url, log } = await gateway(
      settingsOf(
        upstream.url,
        `tenant: jwt:sub\njwt: { jwks: "${keys.url}/", algorithms: [RS256], audience: payments }\n`,
      ),
    );
    const headers = bearer(await token({ sub: "acme" }));

    for (let tries = 0; tries < 3; tries += 1) {
      const refused = await send(url, { json: {}, headers });
      expect([refused.status, JSON.parse(refused.text).code]).toEqual([503, "caller-unavailable"]);
      expect(refused.headers["retry-after"]).toBe("5");
    }
    expect(upstream.got).toHaveLength(0);
    expect(log.filter(({ event }) => event === "caller_unavailable")).toHaveLength(1);

    isDown = false;
    expect((await send(url, { json: {}, headers })).status).toBe(201);
    // What is not protected needs no keys.
    expect((await send(url, { method: "GET", key: null })).status).toBe(201);
  });

  it("may be verified with a secret, with a file, and come in another header", async () => {
    const secret = "s".repeat(32);
    const upstream = await countingService();
    const shared = await gateway(
      settingsOf(
        upstream.url,
        `tenant: jwt:sub
jwt: { secret: "${secret}", algorithms: [HS256], audience: a, header: X-Token, clockToleranceMs: 1m }
`,
      ),
    );
    const token = await new SignJWT({ sub: "acme" })
      .setProtectedHeader({ alg: "HS256" })
      .setAudience("a")
      .setExpirationTime("-30s")
      .sign(Buffer.from(secret));
    expect((await send(shared.url, { json: {}, headers: { "x-token": token } })).status).toBe(201);
    expect((await send(shared.url, { json: {}, headers: bearer(token) })).status).toBe(401);

    const { jwk, token: signed } = await issuer();
    const file = join(await folder(), "keys.json");
    await writeFile(file, JSON.stringify({ keys: [jwk] }));
    const local = await gateway(
      settingsOf(
        upstream.url,
        `tenant: jwt:sub\njwt: { jwksFile: "${file}", algorithms: [RS256], audience: payments }\n`,
      ),
    );
    const headers = bearer(await signed({ sub: "acme" }));
    expect((await send(local.url, { json: {}, headers })).status).toBe(201);
  });
});
