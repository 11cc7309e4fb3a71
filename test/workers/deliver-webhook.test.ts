import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { Webhook } from "standardwebhooks";
import { afterEach, beforeEach, expect, it } from "vitest";
import { NotDeliverableError, RetryLaterError } from "../../src/workers/deliveries/deliver.ts";
import { toWebhook } from "../../src/workers/deliveries/webhook.ts";
import { deliveredMessage, tracedBy } from "./outbox-support.ts";

const secret = `whsec_${Buffer.from("a secret of twenty-four.").toString("base64")}`;
const oldSecret = `whsec_${Buffer.from("the one that was before it").toString("base64")}`;

interface Received {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

let server: Server;
let url: string;
let received: Received[];
let answer: { status: number; headers?: Record<string, string>; hang?: boolean };

beforeEach(async () => {
  received = [];
  answer = { status: 204 };
  server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    received.push({ path: request.url ?? "", headers: request.headers, body });
    if (!answer.hang) response.writeHead(answer.status, answer.headers).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks`;
});

afterEach(async () => {
  server.closeAllConnections();
  server.close();
  await once(server, "close");
});

const context = () => ({ signal: new AbortController().signal });

/** What the receiver does with the standard's own library; throws if it does not believe the sender. */
function verified(
  withSecret: string,
  { body, headers }: Received | { body: string; headers: IncomingHttpHeaders },
) {
  return new Webhook(withSecret).verify(body, headers as Record<string, string>);
}

it("sends what a receiver verifies with the standard's library", async () => {
  await toWebhook({ url, secret })(deliveredMessage(), context());
  const [hook] = received;
  if (hook === undefined) throw new Error("nothing was received");
  expect(verified(secret, hook)).toEqual({
    type: "receipt.send",
    timestamp: "2026-01-02T03:04:05.678Z",
    data: { charge: "ch_1", amount: 500 },
  });
  expect(hook.headers).toMatchObject({
    "content-type": "application/json",
    "webhook-id": "lk_7",
    "idempotency-key": "lk_7",
    "correlation-id": "request-1",
    traceparent: tracedBy,
  });
  expect(() => verified(oldSecret, hook)).toThrow();
  expect(() => verified(secret, { ...hook, body: hook.body.replace("500", "501") })).toThrow();
});

it("is believed by receivers with either secret while one replaces the other", async () => {
  await toWebhook({ url, secrets: [secret, oldSecret] })(deliveredMessage(), context());
  const [hook] = received;
  if (hook === undefined) throw new Error("nothing was received");
  expect(verified(secret, hook)).toEqual(verified(oldSecret, hook));
});

it("has the same id in every attempt", async () => {
  const deliver = toWebhook({ url, secret });
  await deliver(deliveredMessage({ attempt: 1 }), context());
  await deliver(deliveredMessage({ attempt: 2 }), context());
  expect(received.map(({ headers }) => headers["webhook-id"])).toEqual(["lk_7", "lk_7"]);
});

it("goes where the message says, with headers of its own that cannot replace the signature", async () => {
  const deliver = toWebhook({
    url: ({ topic }) => `${url}/${topic}`,
    secret,
    headers: { "x-tenant": "acme", "webhook-signature": "v1,forged" },
  });
  await deliver(deliveredMessage(), context());
  const [hook] = received;
  if (hook === undefined) throw new Error("nothing was received");
  expect(hook.path).toBe("/hooks/receipt.send");
  expect(hook.headers["x-tenant"]).toBe("acme");
  verified(secret, hook);
});

it("uses the fetch that it was given", async () => {
  const asked: unknown[] = [];
  const deliver = toWebhook({
    url,
    secret,
    fetch: async (input) => {
      asked.push(input);
      return new Response(null, { status: 200 });
    },
  });
  await deliver(deliveredMessage(), context());
  expect(asked).toEqual([url]);
  expect(received).toEqual([]);
});

it.each([400, 404, 500, 503])("tries again after a %i", async (status) => {
  answer = { status };
  const delivery = toWebhook({ url, secret })(deliveredMessage(), context());
  await expect(delivery).rejects.toThrow(`the receiver answered ${status}`);
  await expect(delivery).rejects.not.toBeInstanceOf(NotDeliverableError);
  await expect(delivery).rejects.not.toBeInstanceOf(RetryLaterError);
});

it("gives up on a receiver that answers 410", async () => {
  answer = { status: 410 };
  await expect(toWebhook({ url, secret })(deliveredMessage(), context())).rejects.toBeInstanceOf(
    NotDeliverableError,
  );
});

it.each([429, 503])("comes back when a receiver that answers %i says so, in seconds", async (status) => {
  answer = { status, headers: { "retry-after": "17" } };
  await expect(toWebhook({ url, secret })(deliveredMessage(), context())).rejects.toMatchObject({
    code: "retry-later",
    retryAfterMs: 17_000,
  });
});

it("comes back when the receiver says so, as a date", async () => {
  answer = { status: 503, headers: { "retry-after": new Date(Date.now() + 60_000).toUTCString() } };
  const error = await toWebhook({ url, secret })(deliveredMessage(), context()).catch((thrown) => thrown);
  expect(error).toBeInstanceOf(RetryLaterError);
  expect(error.retryAfterMs).toBeGreaterThan(57_000);
  expect(error.retryAfterMs).toBeLessThanOrEqual(60_000);
});

it("does not follow a redirect, and says so", async () => {
  answer = { status: 307, headers: { location: `${url}/elsewhere` } };
  await expect(toWebhook({ url, secret })(deliveredMessage(), context())).rejects.toThrow(
    "redirects are not followed",
  );
  expect(received).toHaveLength(1);
});

it("stops when it is told that it has taken too long", async () => {
  answer = { status: 200, hang: true };
  const controller = new AbortController();
  const delivery = toWebhook({ url, secret })(deliveredMessage(), { signal: controller.signal });
  const settled = expect(delivery).rejects.toThrow();
  await once(server, "request");
  controller.abort(new Error("too slow"));
  await settled;
});

it.each(["", "not-a-secret", "whsec_", "whsec_c2hvcnQ=", `whsec_${"!".repeat(40)}`])(
  "refuses %j as a secret, without repeating it",
  (wrong) => {
    expect(() => toWebhook({ url, secret: wrong })).toThrow("24 to 64 random bytes");
  },
);

it("refuses to send unsigned", () => {
  expect(() => toWebhook({ url, secrets: [] })).toThrow("needs a secret");
});
