import { expect } from "vitest";
import { json } from "../application.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import { type Sending, speak } from "../client.ts";
import type { Case, Site } from "../harness.ts";

/** What is refused leaves no trace: the next correct request under the same key executes, and then replays. */
async function expectUntouched(site: Site, sending: Sending = {}): Promise<void> {
  expect(site.executions).toBe(0);
  const first = await site.send(sending);
  expect(first.status).toBe(201);
  expectReplay(first, await site.send(sending));
  expect(site.executions).toBe(1);
}

/** A key that no well-behaved client could send, in a request that is otherwise correct. */
async function expectKeyRefused(
  site: Site,
  fields: string | Uint8Array,
  by: "Latchkey" | "Node" = "Latchkey",
): Promise<void> {
  const body = '{"amount":10}';
  const heard = await speak(
    site.port,
    Buffer.concat([
      Buffer.from("POST /charges HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"),
      Buffer.from(fields),
      Buffer.from(`\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`),
    ]),
  );
  expect(heard).toMatch(/^HTTP\/1\.1 400 /);
  if (by === "Latchkey") expect(heard).toContain('"code":"key-invalid"');
}

const manyBytes = Buffer.alloc(4096, "x");
/** More than fits into the buffers between a client and a server that does not read. */
const tooManyBytes = Array.from({ length: 48 }, () => Buffer.alloc(64 * 1024, "x"));
const octets = { "content-type": "application/octet-stream" };

export const refusalCases: readonly Case[] = [
  {
    name: "a new key beyond the tenant's limit is 429 and leaves no trace, and retries get their answers",
    async run(trial) {
      const site = await trial.start({ latchkey: { limits: { newKeys: { max: 1, perMs: 60_000 } } } });
      const first = await site.send({ key: "within" });
      const refused = await site.send({ key: "beyond" });
      expectProblem(refused, 429, "rate-limited", "same-key");
      expect(Number(refused.headers["retry-after"])).toBeGreaterThan(50);
      expect(refused.headers["ratelimit-policy"]).toBe('"new-keys";q=1;w=60');
      expect(refused.headers.ratelimit).toBe(`"new-keys";r=0;t=${refused.headers["retry-after"]}`);
      expectReplay(first, await site.send({ key: "within" }));
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a request without a key is refused",
    async run(trial) {
      const site = await trial.start();
      expectProblem(await site.send({ key: null }), 400, "key-missing", "new-key");
      expect(site.store.calls.reserve).toBe(0);
      await expectUntouched(site);
    },
  },
  {
    name: "a request without a key passes where no key is required",
    async run(trial) {
      const site = await trial.start({ policy: { required: false } });
      expect((await site.send({ key: null })).status).toBe(201);
      const again = await site.send({ key: null });
      expect(again.status).toBe(201);
      expect(again.headers["idempotency-expires"]).toBeUndefined();
      expect(again.headers["idempotency-replayed"]).toBeUndefined();
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "two key fields are refused, even with one value",
    async run(trial) {
      const site = await trial.start();
      await expectKeyRefused(site, "idempotency-key: key-1\r\nIdempotency-Key: key-1");
      await expectKeyRefused(site, 'idempotency-key: "key-1"\r\nIdempotency-Key: "key-2"');
      await expectUntouched(site);
    },
  },
  {
    name: "a key with parameters is refused",
    async run(trial) {
      const site = await trial.start();
      expectProblem(await site.send({ key: '"key-1";v=1' }), 400, "key-invalid", "new-key");
      expectProblem(await site.send({ key: "key-1;v=1" }), 400, "key-invalid", "new-key");
      await expectUntouched(site);
    },
  },
  {
    name: "a key with a control character or one outside ASCII is refused",
    async run(trial) {
      const site = await trial.start();
      await expectKeyRefused(site, Buffer.from("idempotency-key: k\u0001ey", "latin1"), "Node");
      await expectKeyRefused(site, Buffer.from("idempotency-key: kéy", "latin1"));
      await expectKeyRefused(site, Buffer.from("idempotency-key: kéy", "utf8"));
      await expectUntouched(site);
    },
  },
  {
    name: "an empty key is refused, however it is spelt",
    async run(trial) {
      const site = await trial.start();
      await expectKeyRefused(site, "idempotency-key:");
      await expectKeyRefused(site, 'idempotency-key: ""');
      await expectUntouched(site);
    },
  },
  {
    name: "a key of 255 characters is accepted and one of 256 is refused",
    async run(trial) {
      const site = await trial.start();
      expectProblem(await site.send({ key: "k".repeat(256) }), 400, "key-invalid", "new-key");
      await expectUntouched(site, { key: "k".repeat(255) });
    },
  },
  {
    name: "profile ietf: a mismatch is 422, and the key is not echoed",
    async run(trial) {
      const site = await trial.start({ policy: { profile: "ietf" } });
      const first = await site.send();
      expect(first.headers["idempotency-key"]).toBeUndefined();
      expectProblem(await site.send({ json: { amount: 11 } }), 422, "key-reused");
      expectReplay(first, await site.send());
    },
  },
  {
    name: "profile stripe: a mismatch is 400, replays are marked in Stripe's way, and the key is echoed",
    async run(trial) {
      const site = await trial.start({ policy: { profile: "stripe" } });
      const first = await site.send();
      expect(first.headers["idempotency-key"]).toBe("key-1");
      const mismatch = await site.send({ json: { amount: 11 } });
      expectProblem(mismatch, 400, "key-reused");
      expect(mismatch.headers["idempotency-key"]).toBe("key-1");
      const second = await site.send();
      expect(second.headers["idempotency-replayed"]).toBeUndefined();
      expectReplay(first, second, { mark: "idempotent-replayed" });
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "profile acp: a mismatch is 422, replays are marked, and the key is echoed",
    async run(trial) {
      const site = await trial.start({ policy: { profile: "acp" } });
      const first = await site.send();
      expect(first.headers["idempotency-key"]).toBe("key-1");
      expectProblem(await site.send({ json: { amount: 11 } }), 422, "key-reused");
      expectReplay(first, await site.send(), { mark: "idempotent-replayed" });
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "the status of a mismatch can be 409",
    async run(trial) {
      const site = await trial.start({ policy: { mismatchStatus: 409 } });
      const first = await site.send();
      expectProblem(await site.send({ json: { amount: 11 } }), 409, "key-reused", "new-key");
      expectReplay(first, await site.send());
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "problems are documented where the team says",
    async run(trial) {
      const site = await trial.start({ latchkey: { problemTypeBase: "https://docs.example/errors#" } });
      const answer = await site.send({ key: null });
      expect(JSON.parse(answer.text)).toMatchObject({ type: "https://docs.example/errors#key-missing" });
    },
  },
  {
    name: "a body that is too large is refused by its content-length, and the connection goes on",
    async run(trial) {
      const site = await trial.start({ policy: { requestBytesMax: 1024 } });
      for (const body of [manyBytes, Buffer.concat(tooManyBytes)]) {
        const answer = await site.sendKept({ headers: octets, body });
        expectProblem(answer, 413, "body-too-large", "never");
      }
      expect((await site.sendKept({ key: "another" })).status).toBe(201);
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a body that is too large is refused while it comes in chunks, and the connection goes on",
    except: { parserFirst: "the parser has read the body before Latchkey, and its own limit applies" },
    async run(trial) {
      const site = await trial.start({ policy: { requestBytesMax: 1024, profile: "stripe" } });
      for (const chunks of [[manyBytes, manyBytes], tooManyBytes]) {
        const answer = await site.sendKept({ headers: octets, chunks });
        expectProblem(answer, 413, "body-too-large", "never");
        expect(answer.headers["idempotency-key"]).toBe("key-1");
      }
      expect((await site.sendKept({ key: "another" })).status).toBe(201);
      expect(site.executions).toBe(1);
      expect(site.store.calls.reserve).toBe(1);
    },
  },
  {
    name: "a body as large as is allowed is let in",
    async run(trial) {
      const site = await trial.start({ policy: { requestBytesMax: 4096 } });
      expect((await site.send({ headers: octets, body: manyBytes })).status).toBe(201);
      expect((await site.send({ key: "another", headers: octets, chunks: [manyBytes] })).status).toBe(201);
    },
  },
  {
    name: "JSON that names a member twice is refused",
    except: { parserFirst: "the parser has dropped one of the two members before Latchkey sees the body" },
    async run(trial) {
      const site = await trial.start();
      const headers = { "content-type": "application/json" };
      const answer = await site.send({ headers, body: '{"amount":10,"amount":9999}' });
      expectProblem(answer, 400, "body-ambiguous", "same-key");
      await expectUntouched(site);
    },
  },
  {
    name: "a caller without a name is refused",
    async run(trial) {
      const site = await trial.start({ latchkey: { tenant: (request) => request.header("x-tenant") } });
      expectProblem(await site.send(), 401, "tenant-missing", "same-key");
      await expectUntouched(site, { headers: { "x-tenant": "acme" } });
    },
  },
  {
    name: "a key never answers across tenants",
    async run(trial) {
      const site = await trial.start({
        latchkey: { tenant: async (request) => request.header("x-tenant") },
        handler: (visit) => json(201, { for: visit.header("x-tenant") }),
      });
      const acme = await site.send({ headers: { "x-tenant": "acme" } });
      const zenith = await site.send({ headers: { "x-tenant": "zenith" }, json: { amount: 99 } });
      expect(JSON.parse(zenith.text)).toEqual({ for: "zenith" });
      expectReplay(acme, await site.send({ headers: { "x-tenant": "acme" } }));
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "equal bodies under different keys, of one tenant or of two, all execute",
    async run(trial) {
      const site = await trial.start({ latchkey: { tenant: (request) => request.header("x-tenant") } });
      for (const [tenant, key] of Object.entries({ acme: "key-1", zenith: "key-2" })) {
        expect((await site.send({ key, headers: { "x-tenant": tenant } })).status).toBe(201);
      }
      expect((await site.send({ key: "key-3", headers: { "x-tenant": "acme" } })).status).toBe(201);
      expect(site.executions).toBe(3);
    },
  },
  {
    name: "a route names its tenant from the framework's own request",
    async run(trial) {
      const site = await trial.start({
        routeTenant: async (header) => header("x-api-key"),
        latchkey: { tenant: () => "of the application" },
      });
      expectProblem(await site.send(), 401, "tenant-missing");
      await expectUntouched(site, { headers: { "x-api-key": "acme" } });
      expect((await site.send({ headers: { "x-api-key": "zenith" } })).status).toBe(201);
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "a tenant function that throws ends in the framework's error path, and nothing is stored",
    async run(trial) {
      trial.expectedWarning = "the directory is down";
      for (const broken of [
        () => {
          throw new Error("the directory is down");
        },
        async () => Promise.reject(new Error("the directory is down")),
      ]) {
        let directory: () => string | Promise<string> = broken;
        const site = await trial.start({ latchkey: { tenant: () => directory() } });
        const answer = await site.send();
        expect(answer.status).toBe(500);
        expect(answer.text).not.toMatch(/at .*\.ts/);
        expect(site.store.calls.reserve).toBe(0);
        directory = () => "acme";
        await expectUntouched(site);
      }
    },
  },
  {
    name: "a wrong request neither overwrites nor delays the right one's answer",
    async run(trial) {
      const site = await trial.start();
      const first = await site.send();
      for (const wrong of [{ json: { amount: 11 } }, { path: "/charges?x=1" }, { method: "PATCH" }]) {
        expectProblem(await site.send(wrong), 422, "key-reused");
        expectReplay(first, await site.send());
      }
      expect(site.executions).toBe(1);
    },
  },
  {
    name: "a key that is older than answers are kept is refused where late arrivals are",
    async run(trial) {
      const site = await trial.start({ policy: { lateArrivals: "reject" } });
      const madeIn1970 = "00000000-0001-7000-8000-000000000000";
      expectProblem(await site.send({ key: madeIn1970 }), 412, "late-arrival", "new-key");
      expect(site.executions).toBe(0);
      expect(site.store.calls.reserve).toBe(0);
    },
  },
];
