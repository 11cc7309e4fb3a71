import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createLatchkey, keyRing } from "../../src/index.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { CommandLine } from "./command-line.ts";

let latchkey: CommandLine;
beforeAll(async () => {
  latchkey = await CommandLine.bundled();
});
afterAll(() => latchkey.remove());

describe("a store whose contents are sealed and whose keys are hashed", () => {
  const secret = randomBytes(32).toString("hex");
  const hashKeys = randomBytes(32).toString("hex");
  let env: Record<string, string>;
  beforeAll(async () => {
    const path = join(latchkey.folder, "sealed.db");
    env = { LATCHKEY_STORE: `sqlite:${path}` };
    const encryption = keyRing([{ id: "k1", secret }]);
    const service = createLatchkey({ store: sqliteStore(path), tenant: "single", encryption, hashKeys });
    await service.run({ tenant: "acme", key: "order-17", input: 1 }, async () => ({ charge: "ch_hidden" }));
    await service.close();
  });

  it("is readable with the secrets in the environment, in either form", async () => {
    const forms = [
      `k1:${secret}`,
      `k0:${randomBytes(32).toString("base64url")}, k1:${secret}`,
      JSON.stringify([{ id: "k1", secret }]),
    ];
    for (const keys of forms) {
      const { code, stdout, stderr } = await latchkey.run(["inspect", "order-17", "--tenant", "acme"], {
        env: { ...env, LATCHKEY_HASH_KEYS: hashKeys, LATCHKEY_ENCRYPTION_KEYS: keys },
      });
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(stdout).toContain("ch_hidden");
    }
  });

  it("without the key ring shows everything but the body, and says why", async () => {
    const { code, stdout, stderr } = await latchkey.run(["inspect", "order-17", "--tenant", "acme"], {
      env: { ...env, LATCHKEY_HASH_KEYS: hashKeys },
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^state +completed$/m);
    expect(stdout).toMatch(
      /cannot be read: it is encrypted, and LATCHKEY_ENCRYPTION_KEYS does not have its key/,
    );
    expect(stdout).not.toContain("ch_hidden");
  });

  it("with another key ring shows no less than without one, and does not seal anything with it", async () => {
    const other = `k9:${randomBytes(32).toString("hex")}`;
    const look = (keys: string) =>
      latchkey.run(["inspect", "order-17", "--tenant", "acme"], {
        env: { ...env, LATCHKEY_HASH_KEYS: hashKeys, LATCHKEY_ENCRYPTION_KEYS: keys },
      });
    const unreadable = await look(other);
    expect(unreadable).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/cannot be read: it is encrypted/),
    });
    expect((await look(`${other},k1:${secret}`)).stdout).toContain("ch_hidden");
    expect((await look(`k1:${secret}`)).stdout).toContain("ch_hidden");
  });

  it("says that a hashed key is found only within its scope, and does not guess", async () => {
    const { code, stderr } = await latchkey.run(["inspect", "order-17"], {
      env: { ...env, LATCHKEY_HASH_KEYS: hashKeys },
    });
    expect(code).toBe(2);
    expect(stderr).toMatch(/add --tenant or --scope/);
    const unhashed = await latchkey.run(["inspect", "order-17", "--tenant", "acme"], { env });
    expect(unhashed.code).toBe(3);
  });

  it("a secret that cannot be used is complained about, and not shown", async () => {
    const { code, stderr } = await latchkey.run(["inspect", "order-17", "--tenant", "acme"], {
      env: { ...env, LATCHKEY_ENCRYPTION_KEYS: "k1:much-too-short" },
    });
    expect(code).toBe(2);
    expect(stderr).toMatch(/"k1" cannot be used/);
    expect(stderr).not.toContain("much-too-short");
  });
});

describe("a store that cannot be reached", () => {
  const password = "s3cr%C3%A9t-pw";
  it.concurrent.each([
    `postgres://dbuser:${password}@127.0.0.1:1/payments`,
    `mysql://dbuser:${password}@127.0.0.1:1/payments`,
    `redis://dbuser:${password}@127.0.0.1:1`,
    `redis-cluster://dbuser:${password}@127.0.0.1:1`,
    `dynamodb://dbuser:${password}@local/table?endpoint=http%3A%2F%2F127.0.0.1%3A1`,
    `postgres://dbuser:${password}@no-such-host.invalid/payments`,
  ])("is one sentence and exit code 1, without the password: %s", { timeout: 60_000 }, async (url) => {
    const all = [["stats"], ["inspect", "k", "--scope", "s", "--json"], ["work"]];
    // The others are tried for some seconds each time.
    for (const args of url.startsWith("postgres") ? all : all.slice(0, 1)) {
      const { code, stdout, stderr } = await latchkey.run(args, { env: { LATCHKEY_STORE: url } });
      expect({ code, stdout }, stderr).toEqual({ code: 1, stdout: "" });
      const said = stderr.split("\n").filter((line) => !/"level":/.test(line) && line !== "");
      expect(said).toHaveLength(1);
      expect(said[0]).toMatch(/the store \S+ cannot be used: /);
      for (const secret of [password, decodeURIComponent(password), "dbuser"])
        expect(stderr).not.toContain(secret);
    }
  });
});

describe("a URL with a password that is not written as it has to be", () => {
  it.each([
    "postgres://dbuser:half/s3cret-pw@127.0.0.1:1/payments",
    "postgres://dbuser:half?s3cret-pw@127.0.0.1:1/payments",
    "postgres://dbuser:half#s3cret-pw@127.0.0.1:1/payments",
    "postgres://dbuser:half-s3cret-pw",
    "mysql://dbuser:half/s3cret-pw@127.0.0.1:1/payments",
    "redis://dbuser:half/s3cret-pw@127.0.0.1:1",
  ])("is bad usage, and nothing of it is shown: %s", async (url) => {
    for (const args of [["stats"], ["work"], ["stats", "--json"]]) {
      const { code, stderr } = await latchkey.run(args, { env: { LATCHKEY_STORE: url } });
      expect(code).toBe(2);
      expect(stderr).toMatch(/the store's URL cannot be read: in a password, write/);
      for (const secret of ["half", "s3cret-pw", "dbuser"]) expect(stderr).not.toContain(secret);
    }
  });

  it("is not shown where a driver takes it, either", async () => {
    const url = "postgres:dbuser:s3cret-pw@127.0.0.1:1/payments";
    const { code, stderr } = await latchkey.run(["stats"], { env: { LATCHKEY_STORE: url } });
    expect(code).toBe(1);
    expect(stderr).toMatch(/the store postgres:\/\/… cannot be used/);
    for (const secret of ["s3cret-pw", "dbuser"]) expect(stderr).not.toContain(secret);
  });
});
