import { gzipSync } from "node:zlib";
import { expect } from "vitest";
import { bytes, empty, json, pieces, stream, text } from "../application.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import type { Case } from "../harness.ts";

/** Every value that a byte can have, so that no decoding and encoding goes unnoticed. */
const allBytes = Uint8Array.from({ length: 256 }, (_, index) => index);

export const replayCases: readonly Case[] = [
  {
    name: "a JSON answer comes back with its status, its headers and its bytes",
    async run(trial) {
      const site = await trial.start({
        policy: { replayHeaders: ["X-Charge-Id"] },
        handler: () =>
          json(201, { id: "ch_1", amount: 10, note: "für Élise ✓" }, [
            ["location", "/charges/ch_1"],
            ["etag", '"v1"'],
            ["link", '</charges/ch_1>; rel="self"'],
            ["link", '</refunds>; rel="related"'],
            ["content-language", "de"],
            ["x-charge-id", "ch_1"],
            ["x-request-id", "for the first request only"],
          ]),
      });
      const first = await site.send();
      const second = await site.send();
      expect(first.status).toBe(201);
      expect(first.headers.link).toBe('</charges/ch_1>; rel="self", </refunds>; rel="related"');
      expect(second.headers.link).toBe(first.headers.link);
      expect(second.headers.location).toBe("/charges/ch_1");
      expect(second.headers.etag).toBe('"v1"');
      expect(second.headers["x-charge-id"]).toBe("ch_1");
      expect(JSON.parse(second.text)).toEqual({ id: "ch_1", amount: 10, note: "für Élise ✓" });
      expect(first.headers["x-request-id"]).toBe("for the first request only");
      expectReplay(first, second, { lost: ["x-request-id"] });
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "when the answer expires is said in the first answer and in the replay",
    async run(trial) {
      const site = await trial.start({ policy: { retentionMs: 3_600_000 } });
      const first = await site.send();
      const second = await site.send();
      const expires = Date.parse(String(first.headers["idempotency-expires"]));
      expect(Math.abs(expires - Date.now() - 3_600_000)).toBeLessThan(10_000);
      expect(second.headers["idempotency-expires"]).toBe(first.headers["idempotency-expires"]);
    },
  },
  {
    name: "text comes back",
    async run(trial) {
      const site = await trial.start({ handler: () => text(200, "Grüße aus Köln") });
      const first = await site.send();
      expect(first.text).toBe("Grüße aus Köln");
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "binary is intact in the first answer and in the replay",
    async run(trial) {
      const site = await trial.start({ handler: () => bytes(allBytes) });
      const first = await site.send();
      expect(first.body).toEqual(Buffer.from(allBytes));
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "from the memory of the process it is the same, as often as it is asked for, until its key is busted",
    async run(trial) {
      const site = await trial.start({
        latchkey: { cache: {} },
        handler: () => bytes(Uint8Array.from([site.executions, ...allBytes])),
      });
      const first = await site.send();
      for (let times = 0; times < 3; times += 1) expectReplay(first, await site.send());
      expect(site.store.calls.reserve).toBe(1);
      const event = site.events.find(({ type }) => type === "reserved");
      if (event?.type !== "reserved") expect.fail("no event tells of the request");
      const { scope, key } = event;
      expect(await site.latchkey.bust({ of: { scope, key }, by: "ada" })).toEqual({ kind: "busted" });
      const second = await site.send();
      expect(second.body).toEqual(Buffer.from([2, ...allBytes]));
      expectReplay(second, await site.send());
    },
  },
  {
    name: "a 204 comes back as a 204, and its handler runs once",
    async run(trial) {
      const site = await trial.start({ handler: () => empty(204) });
      const first = await site.send();
      expect(first.status).toBe(204);
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "an answer that is ended without a body comes back empty",
    async run(trial) {
      const site = await trial.start({ handler: () => empty(200) });
      const first = await site.send();
      expect(first).toMatchObject({ status: 200, text: "" });
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "an answer that was written in pieces comes back whole",
    async run(trial) {
      const site = await trial.start({
        handler: () => pieces(["one, ", allBytes, "", " and three"], [["content-type", "text/x-pieces"]]),
      });
      const first = await site.send();
      expect(first.body).toEqual(Buffer.concat([Buffer.from("one, "), allBytes, Buffer.from(" and three")]));
      expect(first.headers["content-type"]).toBe("text/x-pieces");
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "an answer without a content type comes back without one",
    async run(trial) {
      const site = await trial.start({ handler: () => pieces(["of no ", "type"]) });
      const first = await site.send();
      expect(first.text).toBe("of no type");
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a stream comes back whole",
    async run(trial) {
      const site = await trial.start({
        handler: () =>
          stream(
            async function* () {
              for (let index = 0; index < 64; index++) yield new Uint8Array(1024).fill(index);
            },
            [["content-type", "application/x-stream"]],
          ),
      });
      const first = await site.send();
      expect(first.body.byteLength).toBe(64 * 1024);
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "an answer that the handler compressed itself is replayed as the same compressed bytes",
    async run(trial) {
      const compressed = gzipSync(JSON.stringify({ amount: 10 }));
      const site = await trial.start({
        handler: () => bytes(compressed, [["content-encoding", "gzip"]]),
      });
      const first = await site.send();
      expect(first.body).toEqual(compressed);
      expect(first.headers["content-encoding"]).toBe("gzip");
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a cookie reaches the first client only",
    async run(trial) {
      const site = await trial.start({
        handler: () =>
          json(200, {}, [
            ["set-cookie", "session=secret; HttpOnly"],
            ["set-cookie", "theme=dark"],
          ]),
      });
      const first = await site.send();
      expect(first.headers["set-cookie"]).toEqual(["session=secret; HttpOnly", "theme=dark"]);
      expectReplay(first, await site.send(), { lost: ["set-cookie"] });
    },
  },
  {
    name: "a replay carries today's date, not the stored one",
    async run(trial) {
      const past = "Thu, 01 Jan 1970 00:00:00 GMT";
      const site = await trial.start({ handler: () => json(200, {}, [["date", past]]) });
      expect((await site.send()).headers.date).toBe(past);
      const replay = await site.send();
      expect(Math.abs(Date.parse(String(replay.headers.date)) - Date.now())).toBeLessThan(10_000);
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a stored 400 stays the JSON that it was",
    async run(trial) {
      const site = await trial.start({ handler: () => json(400, { error: "amount must be positive" }) });
      const first = await site.send();
      expect(first.headers["content-type"]).toMatch(/^application\/json\b/);
      const second = await site.send();
      expect(JSON.parse(second.text)).toEqual({ error: "amount must be positive" });
      expectReplay(first, second);
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "reordered JSON with other white space is the same request",
    async run(trial) {
      const site = await trial.start();
      const headers = { "content-type": "application/json" };
      const first = await site.send({ headers, body: '{"amount":10,"to":{"a":1,"b":2}}' });
      const second = await site.send({ headers, body: ' { "to" : {"b":2,"a":1}, "amount": 1e1 } ' });
      expectReplay(first, second);
      expect(site.executions).toBe(1);
    },
  },
  {
    name: 'the number 1 and the string "1" are two requests',
    async run(trial) {
      const site = await trial.start();
      const first = await site.send({ json: { amount: 1 } });
      expectProblem(await site.send({ json: { amount: "1" } }), 422, "key-reused", "new-key");
      expectReplay(first, await site.send({ json: { amount: 1 } }));
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "another query is another request",
    async run(trial) {
      const site = await trial.start();
      const first = await site.send({ path: "/charges?amount=10&currency=eur" });
      expectProblem(await site.send({ path: "/charges?amount=9999&currency=eur" }), 422, "key-reused");
      expectReplay(first, await site.send({ path: "/charges?currency=eur&amount=10" }));
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "the same key on another path never gets the other path's answer",
    async run(trial) {
      const site = await trial.start({
        routes: { "/orders": () => json(201, { order: 1 }), "/refunds": () => json(201, { refund: 1 }) },
      });
      const first = await site.send({ path: "/orders" });
      expectProblem(await site.send({ path: "/refunds" }), 422, "key-reused", "new-key");
      expectReplay(first, await site.send({ path: "/orders" }));
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "with scope tenant+endpoint the same key on another path is another request",
    async run(trial) {
      const site = await trial.start({
        policy: { scope: "tenant+endpoint" },
        routes: { "/orders": () => json(201, { order: 1 }), "/refunds": () => json(201, { refund: 1 }) },
      });
      expect((await site.send({ path: "/orders" })).text).toBe('{"order":1}');
      expect((await site.send({ path: "/refunds" })).text).toBe('{"refund":1}');
      expect((await site.send({ path: "/orders" })).headers["idempotency-replayed"]).toBe("true");
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "the same key with another method is another request",
    async run(trial) {
      const site = await trial.start();
      const first = await site.send({ method: "POST" });
      expectProblem(await site.send({ method: "PATCH" }), 422, "key-reused", "new-key");
      expectReplay(first, await site.send({ method: "POST" }));
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a route's own fingerprint decides what makes two requests the same",
    async run(trial) {
      const site = await trial.start({
        policy: { fingerprint: (request) => (request.json() as { amount: number }).amount },
      });
      const first = await site.send({ json: { amount: 10, sentAt: "09:00" } });
      expectReplay(first, await site.send({ json: { amount: 10, sentAt: "09:01" } }));
      expectProblem(await site.send({ json: { amount: 11, sentAt: "09:00" } }), 422, "key-reused");
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a quoted key and a bare one are the same key",
    async run(trial) {
      const site = await trial.start();
      const first = await site.send({ key: '"order-42"' });
      expectReplay(first, await site.send({ key: "order-42" }));
      expect(site.executions).toBe(1);
    },
  },
];
