import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { adminHandler, type Operator, type ProblemView, serveAdmin } from "../../src/admin/admin.ts";
import { StoreRefusedError } from "../../src/core/errors.ts";
import { ConfigError, createLatchkey } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { type AdminClient, ada, clientOf, eve, inMemory, onVirtualTime, served } from "./admin-client.ts";

const bust = { scope: "acme", key: "a", attempt: 1, reason: "a wrong price" };

async function refusal(response: Response): Promise<ProblemView> {
  expect(response.headers.get("content-type")).toBe("application/problem+json");
  expect(response.headers.get("cache-control")).toBe("no-store");
  const problem = (await response.json()) as ProblemView;
  expect(problem.status).toBe(response.status);
  return problem;
}

async function withRecord(): Promise<{ admin: AdminClient; stateOf(): Promise<string | undefined> }> {
  const latchkey = inMemory();
  await latchkey.run({ tenant: "acme", key: "a", input: 1 }, () => "done");
  return {
    admin: await served(latchkey),
    stateOf: async () => (await latchkey.inspect({ tenant: "acme", key: "a" })).record?.state,
  };
}

describe("without the right token", () => {
  const paths = ["/api/session", "/api/records", "/api/events", "/openapi.json", "/api/there-is-no-such"];

  it("nothing is told, and it is said how to send one", async () => {
    const admin = await served(inMemory());
    for (const path of paths) {
      for (const method of ["GET", "HEAD", "OPTIONS", "POST", "DELETE"]) {
        const response = await admin.ask(path, { token: null, method });
        expect([path, method, response.status]).toEqual([path, method, 401]);
        expect(response.headers.get("www-authenticate")).toBe("Bearer");
      }
    }
    expect(await refusal(await admin.ask("/api/session", { token: null }))).toMatchObject({
      code: "token-missing",
    });
  });

  it("one that is wrong, too short, too long or of another scheme is refused", async () => {
    const admin = await served(inMemory());
    const wrong = [
      ada.token.slice(0, -1),
      `${ada.token}x`,
      ada.token.toUpperCase(),
      `${ada.token}, Bearer ${eve.token}`,
      "x",
      "x".repeat(8_000),
    ];
    const refused = await Promise.all(wrong.map((token) => admin.ask("/api/session", { token })));
    for (const response of refused) {
      expect(response.status).toBe(401);
      expect(await refusal(response)).toMatchObject({ code: "token-wrong" });
    }
    for (const authorization of [`Basic ${ada.token}`, ada.token, "Bearer", "Bearer "]) {
      const response = await admin.ask("/api/session", { token: null, headers: { authorization } });
      expect([authorization, response.status]).toEqual([authorization, 401]);
    }
    expect((await admin.ask("/api/session")).status).toBe(200);
  });

  it("guesses are answered late, and only so many at once; then not even the right one shows itself", async () => {
    const { latchkey, clock } = onVirtualTime();
    const admin = await served(latchkey);
    let answered = 0;
    const guesses = Array.from({ length: 16 }, async (_, n) => {
      const { status } = await admin.ask("/api/session", { token: `a-wrong-token-${n}` });
      answered += 1;
      return status;
    });
    await expect.poll(async () => (await admin.ask("/api/session")).status).toBe(429);
    expect((await admin.ask("/api/session", { token: "a-wrong-token-16" })).headers.get("retry-after")).toBe(
      "1",
    );
    expect(answered).toBe(0);
    await clock.advance(499);
    expect((await admin.ask("/api/session")).status).toBe(429);
    await clock.advance(1);
    expect(await Promise.all(guesses)).toEqual(Array(16).fill(401));
    expect((await admin.ask("/api/session")).status).toBe(200);
  });
});

describe("an operator who may only look", () => {
  it("changes nothing", async () => {
    const { admin, stateOf } = await withRecord();
    const bodies = {
      "/api/record/bust": bust,
      "/api/record/resolve": { scope: "acme", key: "a", attempt: 1, verdict: { kind: "not-executed" } },
      "/api/dead-letters/requeue": { ids: ["1"] },
    };
    for (const [path, body] of Object.entries(bodies)) {
      const response = await admin.post(path, body, { token: eve.token });
      expect(response.status).toBe(403);
      expect(await refusal(response)).toMatchObject({ code: "read-only" });
    }
    expect(await stateOf()).toBe("completed");
    expect((await admin.ask("/api/records", { token: eve.token })).status).toBe(200);
  });
});

describe("what is sent", () => {
  it("must be JSON, and not too much of it", async () => {
    const { admin, stateOf } = await withRecord();
    const send = (body: string, type = "application/json") =>
      admin.ask("/api/record/bust", { method: "POST", body, headers: { "content-type": type } });
    expect((await send(JSON.stringify(bust), "text/plain")).status).toBe(415);
    expect((await send(JSON.stringify(bust), "application/x-www-form-urlencoded")).status).toBe(415);
    expect(await refusal(await send("{"))).toMatchObject({ status: 400, code: "bad-json" });
    expect(await refusal(await send(""))).toMatchObject({ status: 400, code: "bad-json" });
    const huge = JSON.stringify({ ...bust, reason: "x".repeat(1_048_576) });
    expect(await refusal(await send(huge))).toMatchObject({ status: 413, code: "body-too-large" });
    expect(await stateOf()).toBe("completed");
    expect((await send(JSON.stringify(bust), "Application/JSON; charset=utf-8")).status).toBe(200);
  });

  it("without a length is cut off when it is too much", async () => {
    const { admin, stateOf } = await withRecord();
    const chunk = Buffer.from("x".repeat(65_536));
    let sent = 0;
    const body = new ReadableStream({
      pull(controller) {
        sent += 1;
        if (sent > 64) controller.close();
        else controller.enqueue(chunk);
      },
    });
    const headers = { "content-type": "application/json" };
    const init = { method: "POST", headers, body, duplex: "half" } as RequestInit;
    const status = await admin.ask("/api/record/bust", init).then(
      (response) => response.status,
      () => "cut off",
    );
    expect([413, "cut off"]).toContain(status);
    expect(await stateOf()).toBe("completed");
  });

  it("is wrong in many ways at once, and all of them are named", async () => {
    const { admin, stateOf } = await withRecord();
    const problem = await refusal(
      await admin.post("/api/record/bust", { scope: "", attempt: 1.5, reason: 1, by: "somebody else" }),
    );
    expect(problem).toMatchObject({ status: 400, code: "invalid" });
    expect(problem.errors).toEqual([
      { at: "scope", detail: "must not be empty" },
      { at: "key", detail: "is missing" },
      { at: "attempt", detail: "must be a whole number" },
      { at: "reason", detail: "must be text" },
      { at: "by", detail: "is not known here" },
    ]);
    for (const { at, detail } of problem.errors ?? []) expect(problem.detail).toContain(`${at} ${detail}`);
    expect(await stateOf()).toBe("completed");
  });

  it("is refused in every shape that is not the right one", async () => {
    const { admin, stateOf } = await withRecord();
    const resolve = (verdict: unknown) => ({ scope: "acme", key: "a", attempt: 1, verdict });
    const wrong: readonly (readonly [path: string, body: unknown, at: string])[] = [
      ["/api/record/bust", null, ""],
      ["/api/record/bust", "text", ""],
      ["/api/record/bust", { ...bust, reason: " " }, "reason"],
      ["/api/record/resolve", resolve(undefined), "verdict"],
      ["/api/record/resolve", resolve({ kind: "unknown" }), "verdict.kind"],
      ["/api/record/resolve", resolve({ kind: "completed" }), "verdict.response"],
      [
        "/api/record/resolve",
        resolve({ kind: "completed", response: { status: 99 } }),
        "verdict.response.status",
      ],
      [
        "/api/record/resolve",
        resolve({ kind: "completed", response: { status: 200, a: 1 } }),
        "verdict.response.a",
      ],
      ["/api/record/resolve", resolve({ kind: "not-executed", because: "x" }), "verdict.because"],
      ["/api/dead-letters/requeue", { ids: [] }, "ids"],
      ["/api/dead-letters/requeue", { ids: [1] }, "ids.0"],
      ["/api/dead-letters/requeue", { ids: "1" }, "ids"],
    ];
    for (const [path, body, at] of wrong) {
      // A text is sent as it is, so it is quoted here.
      const problem = await refusal(await admin.post(path, typeof body === "string" ? `"${body}"` : body));
      expect([body, problem.status, problem.errors?.[0]?.at]).toEqual([body, 400, at]);
    }
    expect(await stateOf()).toBe("completed");
  });
});

describe("what is asked for", () => {
  it("names what is not known, and what cannot be used", async () => {
    const admin = await served(inMemory());
    const problem = await refusal(
      await admin.ask("/api/records?stat=unknown&limit=0&from=yesterday&state=lost"),
    );
    expect(problem.errors?.map(({ at }) => at).sort()).toEqual(["from", "limit", "stat", "state"]);
    for (const path of ["/api/session", "/api/stats", "/api/events", "/openapi.json"]) {
      expect(await refusal(await admin.ask(`${path}?x=1`))).toMatchObject({ errors: [{ at: "x" }] });
    }
    expect(await refusal(await admin.ask("/api/records?key=a&key=b"))).toMatchObject({
      errors: [{ at: "key", detail: "is given more than once" }],
    });
    expect(await refusal(await admin.ask("/api/record?scope=a"))).toMatchObject({ errors: [{ at: "key" }] });
    expect(await refusal(await admin.ask("/api/activity?window=1y"))).toMatchObject({
      errors: [{ at: "window" }],
    });
    expect((await admin.ask("/api/records?__proto__=1")).status).toBe(400);
  });

  it("with what no store can be asked for is refused, and not taken for a store that is down", async () => {
    const { admin } = await withRecord();
    for (const [at, path] of [
      ["key", "/api/records?key=a%00b"],
      ["tenant", "/api/records?tenant=a%0Ab"],
      ["scope", "/api/record?scope=a%00&key=a"],
      ["cursor", "/api/audit?cursor=%00"],
    ] as const) {
      expect(await refusal(await admin.ask(path))).toMatchObject({
        status: 400,
        errors: [{ at, detail: "must not hold control characters" }],
      });
    }
    const requeued = await admin.post("/api/dead-letters/requeue", { ids: ["1", "\u0000"] });
    expect(await refusal(requeued)).toMatchObject({ status: 400, errors: [{ at: "ids.1" }] });
  });

  it("cannot go on from anywhere", async () => {
    const { admin } = await withRecord();
    for (const path of ["/api/records", "/api/audit"]) {
      for (const cursor of ["x", "12", "%00", "aWQ6MQ=="]) {
        const response = await admin.ask(`${path}?cursor=${cursor}`);
        expect([path, cursor, response.status]).toEqual([path, cursor, 400]);
        expect(await refusal(response)).toMatchObject({ errors: [{ at: "cursor" }] });
      }
    }
  });

  it("is not taken for a wrong place where none was named", async () => {
    const store = memoryStore();
    const latchkey = createLatchkey({ store, tenant: "single" });
    store.list = async () => {
      throw new StoreRefusedError("the vault did not answer");
    };
    const admin = await served(latchkey);
    expect(await refusal(await admin.ask("/api/records"))).toMatchObject({ status: 503 });
    expect(await refusal(await admin.ask("/api/records?cursor=x"))).toMatchObject({ status: 400 });
  });

  it("is not there: 404, and for what is not any more too", async () => {
    const { admin } = await withRecord();
    expect(await refusal(await admin.ask("/api/record?scope=acme&key=b"))).toMatchObject({ status: 404 });
    expect(await refusal(await admin.ask("/api/"))).toMatchObject({ status: 404 });
    expect(await refusal(await admin.ask("/api/records/"))).toMatchObject({ status: 404 });
  });

  it("by another method is refused, and the right ones are named", async () => {
    const admin = await served(inMemory());
    for (const [path, method, allow] of [
      ["/api/records", "POST", "GET, HEAD, OPTIONS"],
      ["/api/record/bust", "GET", "POST, OPTIONS"],
      ["/api/record/bust", "PUT", "POST, OPTIONS"],
      ["/", "POST", "GET, HEAD, OPTIONS"],
    ] as const) {
      const response = await admin.ask(path, { method });
      expect([path, response.status, response.headers.get("allow")]).toEqual([path, 405, allow]);
    }
    const options = await admin.ask("/api/records", { method: "OPTIONS" });
    expect([options.status, options.headers.get("allow")]).toEqual([204, "GET, HEAD, OPTIONS"]);
    expect(options.headers.get("access-control-allow-origin")).toBeNull();
    const head = await admin.ask("/api/stats", { method: "HEAD" });
    expect([head.status, await head.text()]).toEqual([200, ""]);
    expect((await admin.ask("/api/events", { method: "HEAD" })).status).toBe(200);
  });

  it("outside of the page's files is nowhere", async () => {
    const admin = await served(inMemory());
    const { port, hostname } = new URL(admin.url);
    // A client would tidy these up before it sends them.
    const raw = (target: string) =>
      new Promise<string>((resolve, reject) => {
        const socket = connect(Number(port), hostname, () =>
          socket.write(`GET ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`),
        );
        let text = "";
        socket.on("data", (bytes) => {
          text += bytes;
        });
        socket.on("end", () => resolve(text));
        socket.on("error", reject);
      });
    for (const target of [
      "/..%2fadmin/admin.js",
      "/../package.json",
      "/assets/../../../package.json",
      "/%2e%2e/package.json",
      "/..%5cpackage.json",
      "//etc/passwd",
      "/index.html%00.js",
      "http://x/../package.json",
    ]) {
      const answer = await raw(target);
      expect([target, answer.slice(9, 12)]).not.toEqual([target, "200"]);
      expect(answer).not.toContain('"dependencies"');
    }
  });
});

describe("how it is put together", () => {
  const refusedWith = (options: Record<string, unknown>) => () =>
    adminHandler(inMemory(), { operators: [ada], ...options } as { operators: Operator[] });

  it("nobody is let in by a token that can be guessed, or told from another by none", () => {
    for (const operators of [
      undefined,
      [],
      [{ name: "ada", token: "fifteen-letters" }],
      [{ name: "ada", token: "sixteen letters !" }],
      [{ name: "ada" }],
      [{ name: "", token: ada.token }],
      [ada, { ...eve, name: "ada" }],
      [ada, { ...eve, token: ada.token }],
    ]) {
      expect(refusedWith({ operators })).toThrow(ConfigError);
    }
  });

  it("a right that is misspelt is refused, and not given", () => {
    for (const operators of [
      [{ ...ada, readonly: true }],
      [{ ...ada, readOnly: "true" }],
      [{ ...ada, readOnly: 1 }],
      [{ ...ada, readOnly: null }],
      [null],
    ]) {
      expect(refusedWith({ operators })).toThrow(ConfigError);
    }
    expect(refusedWith({ operators: [{ ...ada, readonly: true }] })).toThrow(
      /"readonly", which is not known/,
    );
  });

  it("says what is wrong with a path, a port, a role or what is shown", async () => {
    for (const options of [{ path: "admin" }, { path: "/admin/" }, { role: "" }, { responses: "none" }]) {
      expect(refusedWith(options)).toThrow(ConfigError);
    }
    await expect(serveAdmin(inMemory(), { port: 65_536, operators: [ada] })).rejects.toThrow(ConfigError);
  });

  it("answers below its path only", async () => {
    const admin = await served(inMemory(), { path: "/ops/admin" });
    expect((await admin.ask("/api/session")).status).toBe(200);
    const root = clientOf(new URL(admin.url).origin);
    expect((await root.ask("/api/session")).status).toBe(404);
    expect((await root.ask("/ops/administrator")).status).toBe(404);
    const page = await root.ask("/ops/admin");
    expect([page.status, page.headers.get("location")]).toEqual([308, "admin/"]);
  });

  it("without the console there is no page", async () => {
    const admin = await served(inMemory(), { console: false });
    expect((await admin.ask("/")).status).toBe(404);
    expect((await admin.ask("/api/session")).status).toBe(200);
  });
});

it("every answer is strict about what a page may do with it", async () => {
  const admin = await served(inMemory());
  for (const path of ["/", "/api/session", "/api/nothing", "/nothing"]) {
    const { headers } = await admin.ask(path);
    expect(headers.get("content-security-policy")).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    );
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(headers.get("referrer-policy")).toBe("no-referrer");
    expect(headers.get("cross-origin-opener-policy")).toBe("same-origin");
    expect(headers.get("cross-origin-resource-policy")).toBe("same-origin");
  }
  expect((await admin.ask("/api/session")).headers.get("cache-control")).toBe("no-store");
});

it("a store that does not answer is 503, and is not spoken of in detail", async () => {
  const latchkey = inMemory();
  const admin = await served(latchkey);
  Object.assign(latchkey.store, {
    list: () => Promise.reject(new Error("password authentication failed for root")),
  });
  const response = await admin.ask("/api/records");
  expect(response.headers.get("retry-after")).toBe("1");
  const problem = await refusal(response);
  expect(problem).toMatchObject({ status: 503, code: "store-unavailable" });
  expect(problem.detail).not.toContain("root");
});
