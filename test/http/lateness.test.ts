import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { type ConfigError, signRequestTime } from "../../src/index.ts";
import { codeOf, hour, minute, service } from "./late-service.ts";

const header = "Idempotency-First-Sent";
const seconds = (ms: number) => `@${Math.floor(ms / 1000)}`;

describe("a first-sent header", () => {
  const requestTime = { header };

  it("lets a young request run, and its late repetition never, whatever has become of the record", async () => {
    const api = service({ requestTime });
    const sent = { [header]: seconds(api.clock.now()) };
    expect((await api.post("k", sent)).status).toBe(201);
    for (let elapsed = 0; elapsed < 3 * hour; elapsed += 5 * minute) {
      const again = await api.post("k", sent);
      expect([201, 412]).toContain(again.status);
      await api.clock.advance(5 * minute);
      await api.latchkey.reap();
    }
    expect(api.ran).toHaveLength(1);
    expect(await codeOf(await api.post("k", sent))).toBe("late-arrival");
  });

  it.each<[string, (now: number) => Record<string, string>]>([
    ["is missing", () => ({})],
    ["is garbled", () => ({ [header]: "yesterday" })],
    ["came twice", (now) => ({ [header]: `${seconds(now)}, ${seconds(now)}` })],
    ["is in the future", (now) => ({ [header]: seconds(now + 6 * minute) })],
  ])("is asked for when it %s, and nothing runs", async (_what, headers) => {
    const api = service({ requestTime });
    const refused = await api.post("k", headers(api.clock.now()));
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({ code: "request-time-invalid", retry: "same-key" });
    expect(api.ran).toEqual([]);
    expect(api.store.calls.reserve).toBe(0);
  });

  it("may be ahead by as much as clocks differ", async () => {
    const api = service({ requestTime, clockSkewMs: 10_000 });
    expect((await api.post("a", { [header]: seconds(api.clock.now() + 10_000) })).status).toBe(201);
    expect((await api.post("b", { [header]: seconds(api.clock.now() + 12_000) })).status).toBe(400);
  });

  it("that is ahead leaves no time in which the answer is gone and the request is young", async () => {
    const api = service({ requestTime, clockSkewMs: 5 * minute });
    const sent = { [header]: seconds(api.clock.now() + 5 * minute) };
    expect((await api.post("k", sent)).status).toBe(201);
    for (let elapsed = 0; elapsed < 90; elapsed += 1) {
      await api.clock.advance(minute);
      await api.latchkey.reap();
      await api.post("k", sent);
    }
    expect(api.ran).toHaveLength(1);
  });
});

describe("a signed first-sent header", () => {
  const secret = randomBytes(32);
  const sign = (sentAt: number, more: { tenant?: string; key?: string; secret?: Uint8Array } = {}) =>
    signRequestTime({ secret, tenant: "acme", key: "k", sentAt, ...more });

  it("lets its own caller's own key run", async () => {
    const api = service({ requestTime: { header, secret } });
    const sent = { [header]: sign(api.clock.now()) };
    expect((await api.post("k", sent)).status).toBe(201);
    await api.clock.advance(2 * hour);
    await api.latchkey.reap();
    expect((await api.post("k", sent)).status).toBe(412);
    expect(api.ran).toHaveLength(1);
  });

  it.each<[string, (now: number) => string]>([
    ["unsigned", (now) => seconds(now)],
    ["written in a way that cannot be signed", (now) => new Date(now).toUTCString()],
    ["signed for another tenant", (now) => sign(now, { tenant: "zenith" })],
    ["signed for another key", (now) => sign(now, { key: "k2" })],
    ["signed with another secret", (now) => sign(now, { secret: randomBytes(32) })],
    ["moved to a later time", (now) => sign(now - 2 * hour).replace(/@\d+/, seconds(now))],
  ])("is refused when it is %s, always in the same words", async (_what, value) => {
    const api = service({ requestTime: { header, secret } });
    const refused = await api.post("k", { [header]: value(api.clock.now()) });
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({
      code: "request-time-invalid",
      detail: `The ${header} header has to be signed for this caller, this key and this time, and is not.`,
    });
    expect(api.ran).toEqual([]);
  });

  it("is good by the old secret and the new one while they are changed", async () => {
    const next = randomBytes(32);
    const api = service({ requestTime: { header, secrets: [next, secret] } });
    expect((await api.post("k", { [header]: sign(api.clock.now()) })).status).toBe(201);
    const renewed = sign(api.clock.now(), { key: "k2", secret: next });
    expect((await api.post("k2", { [header]: renewed })).status).toBe(201);
  });

  it.each(["at once", "later"])("is checked by the tenant's own secret, which is known %s", async (when) => {
    const secretsOf: Record<string, Uint8Array> = { acme: secret, zenith: randomBytes(32) };
    const secretOf = (tenant: string) =>
      when === "later" ? Promise.resolve(secretsOf[tenant]) : secretsOf[tenant];
    const api = service({ requestTime: { header, secretOf } });
    const sent = { [header]: sign(api.clock.now()) };
    expect((await api.post("k", sent)).status).toBe(201);
    const stolen = { [header]: sign(api.clock.now(), { tenant: "zenith" }), "x-tenant": "zenith" };
    expect((await api.post("k", stolen)).status).toBe(400);
    const nobody = { [header]: sign(api.clock.now(), { tenant: "nobody" }), "x-tenant": "nobody" };
    expect((await api.post("k", nobody)).status).toBe(400);
    expect(api.ran).toHaveLength(1);
  });

  it("is not checked by a secret that could be guessed", async () => {
    const api = service({ requestTime: { header, secretOf: () => "short" } });
    await expect(api.post("k", { [header]: sign(api.clock.now()) })).rejects.toThrow(/at least 16/);
    expect(api.ran).toEqual([]);
  });
});

describe("rules for late arrivals that cannot be kept", () => {
  it.each<[string, object, RegExp]>([
    [
      "an age beyond what is kept",
      { requestAgeMsMax: 2 * hour },
      /raise retentionMs, or leave requestAgeMsMax/,
    ],
    ["an age of nothing", { requestAgeMsMax: 0 }, /requestAgeMsMax is 0 and must be above 0/],
    ["an age as text", { requestAgeMsMax: "60000" }, /requestAgeMsMax is 60000 and must be above 0/],
    ["a negative skew", { clockSkewMs: -1 }, /clockSkewMs is -1 and must not be below 0/],
    ["an endless skew", { clockSkewMs: Infinity }, /needs a clockSkewMs that ends/],
    ["a source that is none", { requestTime: "body" }, /requestTime must be "key" or/],
    ["a header without a name", { requestTime: { header: "" } }, /must be the name of a header/],
    ["a misspelt option", { requestTime: { header, secert: "x" } }, /no option "secert"/],
    ["a short secret", { requestTime: { header, secret: "short" } }, /at least 16/],
    ["no secrets", { requestTime: { header, secrets: [] } }, /at least one secret/],
    [
      "two kinds of secrets",
      { requestTime: { header, secret: "0123456789abcdef", secretOf: () => undefined } },
      /not two of them/,
    ],
    ["a secret that is no function", { requestTime: { header, secretOf: "x" } }, /must be a function/],
  ])("%s", (_what, policy, message) => {
    expect(() => service(policy)).toThrow(message);
    expect(() => service(policy)).toThrow(
      expect.objectContaining({ code: "config" } satisfies Partial<ConfigError>) as Error,
    );
  });

  it("may be given for all routes, for those that refuse", () => {
    expect(() => service({ lateArrivals: "allow", requestTime: { header } })).not.toThrow();
  });
});
