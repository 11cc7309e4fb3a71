import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type ScopePolicy, scopeOf } from "../../src/core/scope.ts";
import { createLatchkey, type Store } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { type Service, startService } from "./service.ts";

/** Tenants whose names are made to be read as something else. */
const tenants = [
  "a",
  "a POST /pay",
  "a%20POST%20/pay",
  "a%2520POST%2520/pay",
  "a\tPOST\t/pay",
  "a ",
  " a",
  "A",
  "a\u0000",
  "a\u200b",
  "a\u00e9",
  "ae\u0301",
  "a%C3%A9",
  "a\ud800",
  "a\udfff",
  "a\ufffd",
  "a%ED%A0%80",
  "sha256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU",
  "x".repeat(255),
  "\u00e9".repeat(255),
  "__proto__",
  "constructor",
  "'; DROP TABLE latchkey_records; --",
  "{a}",
  "a:k",
  "../a",
];

describe("a tenant's name", () => {
  it.each<ScopePolicy>(["tenant", "tenant+endpoint"])(
    "never makes one scope of two, whatever is in it, where keys are for a %s",
    (policy) => {
      const paths = ["/pay", "/pay/", "/pay%20", "/pay POST /pay", "/\ud800", "/\udfff", "/p\u00e1y"];
      const endpoints = paths.flatMap((path) => [
        { method: "POST", path },
        { method: "POST /pay", path },
      ]);
      const scopes = tenants.flatMap((tenant) =>
        (policy === "tenant" ? endpoints.slice(0, 1) : endpoints).map((endpoint) =>
          scopeOf({ tenant, policy, ...endpoint }),
        ),
      );
      expect(new Set(scopes).size).toBe(scopes.length);
      for (const scope of scopes) expect(scope).toMatch(/^[ -~]{1,512}$/);
    },
  );

  it("cannot be the scope of another one's endpoint", () => {
    const endpoints = tenants.map((tenant) =>
      scopeOf({ tenant, policy: "tenant+endpoint", method: "POST", path: "/pay" }),
    );
    const whole = tenants.map((tenant) => scopeOf({ tenant, policy: "tenant", method: "", path: "" }));
    expect(endpoints.filter((scope) => whole.includes(scope))).toEqual([]);
  });

  it("that is made up to be another's endpoint has requests of its own, and answers of its own", async () => {
    const paid: string[] = [];
    const run = (latchkey: ReturnType<typeof createLatchkey>, tenant: string) =>
      latchkey.run({ tenant, key: "k", input: 1 }, () => {
        paid.push(tenant);
        return `for ${tenant}`;
      });
    const store: Store = memoryStore();
    for (const scope of ["tenant", "tenant+endpoint"] as const) {
      const latchkey = createLatchkey({ store, tenant: "single", scope, name: "POST /pay" });
      paid.length = 0;
      for (const tenant of tenants) expect(await run(latchkey, tenant)).toBe(`for ${tenant}`);
      for (const tenant of tenants) expect(await run(latchkey, tenant)).toBe(`for ${tenant}`);
      expect(paid).toEqual(tenants);
    }
  });

  it("that is empty or endless is nobody's", async () => {
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
    for (const tenant of ["", "x".repeat(256)]) {
      await expect(latchkey.run({ tenant, key: "k" }, () => 1)).rejects.toThrow(/needs the tenant/);
    }
  });
});

describe("a key header that is made to be misread", () => {
  let service: Service;
  beforeAll(async () => {
    service = await startService({ store: memoryStore() });
  });
  afterAll(() => service.close());

  /** Sends bytes as they are, and answers with the status line; a client's library would refuse to. */
  function raw(keyLines: string): Promise<string> {
    const { hostname, port } = new URL(service.url);
    return new Promise((resolve, reject) => {
      let text = "";
      const socket = connect(Number(port), hostname, () => {
        socket.write(
          Buffer.from(
            `POST /pay HTTP/1.1\r\nHost: x\r\nX-Tenant: acme\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n${keyLines}\r\n\r\n{}`,
            "latin1",
          ),
        );
      });
      socket.on("data", (data) => {
        text += data;
      });
      const firstLine = () => text.split("\r\n", 1)[0] ?? "";
      socket.on("end", () => resolve(firstLine()));
      socket.on("error", (error) => {
        // Node may refuse before everything was sent, and what it said can get lost then.
        if ((error as NodeJS.ErrnoException).code !== "ECONNRESET") reject(error);
        else resolve(text === "" ? "reset" : firstLine());
      });
    });
  }

  it.each([
    ["sent twice", "Idempotency-Key: a\r\nIdempotency-Key: b"],
    ["sent twice with one value", "Idempotency-Key: a\r\nidempotency-key: a"],
    ["a list", "Idempotency-Key: a, b"],
    ["a list of quoted keys", 'Idempotency-Key: "a", "b"'],
    ["with parameters", 'Idempotency-Key: "a";tenant=victim'],
    ["empty", "Idempotency-Key:"],
    ["blank", "Idempotency-Key: \t "],
    ["an empty string", 'Idempotency-Key: ""'],
    ["not closed", 'Idempotency-Key: "a'],
    ["closed by an escape", 'Idempotency-Key: "a\\"'],
    ["with text behind", 'Idempotency-Key: "a"b'],
    ["with a tab", "Idempotency-Key: a\tb"],
    ["with a byte above ASCII", "Idempotency-Key: a\u00e9"],
    ["with a null byte", "Idempotency-Key: a\u0000b"],
    ["with a bare carriage return", "Idempotency-Key: a\rb"],
    ["continued on a line of its own", "Idempotency-Key: a\r\n b"],
    ["too long", `Idempotency-Key: ${"k".repeat(256)}`],
    ["much too long", `Idempotency-Key: ${"k".repeat(100_000)}`],
    ["with a space before the colon", "Idempotency-Key : a"],
    ["under a name that looks alike", "Idempotency_Key: a"],
  ])("%s: refused, and nothing is paid", async (what, lines) => {
    expect(await raw(lines)).toMatch(/^HTTP\/1.1 4\d\d |^reset$/);
    // Whatever it may have begun has been done when the next one is answered.
    const next = `after-${what.replaceAll(" ", "-")}`;
    expect(await raw(`Idempotency-Key: ${next}`)).toMatch(/ 201 /);
    expect(service.paid).toEqual([`acme ${next}`]);
    (service.paid as string[]).length = 0;
  });

  it("names what was sent, and nothing that an object has anyway", async () => {
    for (const key of ["__proto__", "constructor", "hasOwnProperty", "a%20b", "a'--", "{k}", "../k"]) {
      expect(await raw(`Idempotency-Key: ${key}`)).toMatch(/ 201 /);
      expect(service.paid).toHaveLength(1);
      expect((await service.status({ tenant: "acme" }, key)).status).toBe(201);
      expect((await service.status({ tenant: "other" }, key)).status).toBe(404);
      (service.paid as string[]).length = 0;
    }
  });
});
