import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import { idempotent } from "../../src/adapters/node.ts";
import { type CapturedResponse, createLatchkey, currentOperation, type Redaction } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { useFolder } from "../stores/sqlite-support.ts";
import { problemOf, service, storedAnswer } from "./support.ts";

const charge = {
  id: "ch_1",
  card: { number: "4111111111111111" },
  items: [{ secret: "s1" }, { secret: "s2" }],
};

function charges(redact: Redaction, options = {}, body: string = JSON.stringify(charge)) {
  const store = memoryStore();
  const api = service(
    { store, replayHeaders: ["x-token"], ...options },
    { redact },
    () =>
      new Response(body, { status: 201, headers: { "x-token": "t0ken", etag: '"1"', location: "/ch_1" } }),
  );
  return { store, ...api };
}

const place = useFolder();

describe("redaction", () => {
  it("leaves the first answer whole, and stores and replays it without the values", async () => {
    const { store, post, runs } = charges({
      paths: ["card.number", "items[*].secret"],
      headers: ["X-Token"],
    });
    const first = await post("k1");
    expect(await first.json()).toEqual(charge);
    expect(first.headers.get("x-token")).toBe("t0ken");
    expect(first.headers.get("idempotency-redacted")).toBeNull();

    const stored = await storedAnswer(store, "k1");
    expect(Buffer.from(stored.body).toString() + JSON.stringify(stored.headers)).not.toMatch(
      /4111|s1|s2|t0ken/,
    );
    const replay = await post("k1");
    expect(await replay.json()).toEqual({
      id: "ch_1",
      card: { number: "[redacted]" },
      items: [{ secret: "[redacted]" }, { secret: "[redacted]" }],
    });
    expect(replay.headers.get("idempotency-redacted")).toBe("true");
    expect(replay.headers.get("idempotency-replayed")).toBe("true");
    expect(replay.headers.get("x-token")).toBeNull();
    // It was the tag of another body.
    expect(replay.headers.get("etag")).toBeNull();
    expect(replay.headers.get("location")).toBe("/ch_1");
    expect(runs()).toBe(1);
  });

  it("says nothing where there was nothing to take away", async () => {
    const { post } = charges({ paths: ["nothing.here"], headers: ["x-none"] });
    await post("k1");
    const replay = await post("k1");
    expect(await replay.json()).toEqual(charge);
    expect(replay.headers.get("idempotency-redacted")).toBeNull();
    expect(replay.headers.get("etag")).toBe('"1"');
  });

  it("shows duplicates that waited for the first one what is stored, too", async () => {
    let finish = () => {};
    const finished = new Promise<void>((resolve) => {
      finish = resolve;
    });
    const api = service(
      { store: memoryStore(), onInFlight: "wait" },
      { redact: { paths: ["card"] } },
      async () => {
        await finished;
        return Response.json(charge);
      },
    );
    const first = api.post("k1");
    const second = api.post("k1");
    await expect.poll(() => api.runs()).toBe(1);
    finish();
    expect(await (await first).json()).toEqual(charge);
    const joined = await second;
    expect(await joined.json()).toMatchObject({ card: "[redacted]" });
    expect(joined.headers.get("idempotency-redacted")).toBe("true");
  });

  it("keeps only the status of a body that is not JSON and has paths", async () => {
    const { post, runs } = charges({ paths: ["card.number"] }, {}, "card: 4111111111111111");
    expect(await (await post("k1")).text()).toContain("4111");
    const retry = await post("k1");
    expect(await problemOf(retry)).toMatchObject({ code: "response-not-stored", originalStatus: 201 });
    expect(retry.headers.get("idempotency-replayed")).toBe("true");
    expect(runs()).toBe(1);
  });

  describe("of a body that is nested more deeply than can be walked", () => {
    const depth = 10_000;
    const body = `${"[".repeat(depth)}{"secret":1}${"]".repeat(depth)}`;
    const redact = { paths: ["secret"] };

    it("keeps only its status, and the first client has its answer", async () => {
      const { post, runs } = charges(redact, {}, body);
      expect(await (await post("k1")).text()).toBe(body);
      expect(await problemOf(await post("k1"))).toMatchObject({ code: "response-not-stored" });
      expect(runs()).toBe(1);
    });

    it("does so on a server of Node as well", async () => {
      const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
      let runs = 0;
      const server = createServer(
        idempotent(latchkey, { redact })((_req, res) => {
          runs += 1;
          res.writeHead(201, { "content-type": "application/json" }).end(body);
        }),
      );
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      const { port } = server.address() as AddressInfo;
      const post = () =>
        fetch(`http://127.0.0.1:${port}/`, { method: "POST", headers: { "idempotency-key": "k1" } });
      try {
        expect(await (await post()).text()).toBe(body);
        expect(await problemOf(await post())).toMatchObject({
          code: "response-not-stored",
          originalStatus: 201,
        });
        expect(runs).toBe(1);
      } finally {
        server.closeAllConnections();
        server.close();
      }
    });
  });

  it("has nothing to take away from a body that is empty", async () => {
    const { post } = charges({ paths: ["card.number"] }, {}, "");
    await post("k1");
    expect((await post("k1")).status).toBe(201);
  });

  it("by a function stores what it returns, and nothing if it throws or returns no bytes", async () => {
    const { post } = charges({ body: ({ body }) => Buffer.from(`${body.byteLength} bytes`) });
    await post("k1");
    expect(await (await post("k1")).text()).toBe(`${JSON.stringify(charge).length} bytes`);

    const broken = [
      () => {
        throw new Error("a bug");
      },
      () => "text" as unknown as Uint8Array,
    ] satisfies ((response: CapturedResponse) => Uint8Array)[];
    for (const body of broken) {
      const api = charges({ body });
      expect((await api.post("k1")).status).toBe(201);
      expect((await problemOf(await api.post("k1"))).code).toBe("response-not-stored");
      expect(api.events).toContainEqual(expect.objectContaining({ type: "handler_failed" }));
    }
  });

  it("also redacts what op.respond commits, the cache keeps, run returns and an operator says", async () => {
    const store = sqliteStore(place.path);
    const api = service({ store, redact: { paths: ["card"] } }, { name: "charges" }, async () => {
      const op = currentOperation();
      await op.atomic("charged", (tx) => op.respond(tx, { status: 201, body: charge }));
      return new Response("not sent");
    });
    expect(await (await api.post("k1")).json()).toEqual(charge);
    expect(await (await api.post("k1")).json()).toMatchObject({ id: "ch_1", card: "[redacted]" });

    const run = () => api.latchkey.run({ tenant: "acme", key: "job" }, () => charge);
    expect(await run()).toEqual(charge);
    expect(await run()).toMatchObject({ card: "[redacted]" });
    await api.latchkey.close();

    const cached = service({ store: memoryStore(), cache: {}, redact: { paths: ["card"] } }, {}, () =>
      Response.json(charge),
    );
    await cached.post("k1");
    expect(await (await cached.post("k1")).json()).toMatchObject({ card: "[redacted]" });

    const doubtful = service(
      { store: memoryStore(), redact: { paths: ["card"] }, onServerError: "reconcile" },
      {},
      () => new Response(null, { status: 500 }),
    );
    await doubtful.post("k1");
    const verdict = { kind: "completed", response: { status: 200, body: charge } } as const;
    await doubtful.latchkey.resolve({ of: { tenant: "acme", key: "k1" }, by: "ada", verdict });
    expect(await (await doubtful.post("k1")).json()).toMatchObject({ card: "[redacted]" });
  });

  it("does not store more than the route allows, where what replaces a value is longer", async () => {
    const { post } = charges({ paths: ["card.number"] }, { responseBytesMax: 8 }, "[]");
    await post("k1");
    expect((await post("k1")).status).toBe(201);
    const grown = service(
      { store: memoryStore(), responseBytesMax: 10 },
      { redact: { paths: ["a"] } },
      () => new Response('{"a":1}'),
    );
    await grown.post("k1");
    expect((await problemOf(await grown.post("k1"))).code).toBe("response-not-stored");
  });

  it.each([
    [{ paths: ["a[0]"] }, /redact\.paths has "a\[0\]"/],
    [{ paths: "card" }, /an array of paths/],
    [{ headers: [7] }, /array of header names/],
    [{ body: "x" }, /must be a function/],
    [{ path: ["card"] }, /redact has no "path"/],
    ["card", /redact must be/],
  ])("refuses rules that it could not keep: %j", (redact, message) => {
    expect(() => charges(redact as Redaction)).toThrow(message);
  });
});
