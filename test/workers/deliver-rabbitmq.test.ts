import { type ChannelModel, connect } from "amqplib";
import { afterAll, beforeAll, expect, it } from "vitest";
import { toRabbitMq } from "../../src/workers/deliveries/rabbitmq.ts";
import { startRabbitMq } from "../support/rabbitmq-server.ts";
import type { ServerProcess } from "../support/server-process.ts";
import { deliveredMessage, tracedBy } from "./outbox-support.ts";

let server: ServerProcess;
let connection: ChannelModel;

beforeAll(async () => {
  server = await startRabbitMq();
  connection = await connect(server.url);
}, 120_000);

afterAll(async () => {
  await connection?.close();
  await server?.stop();
});

const context = { signal: new AbortController().signal };

/** An exchange with a queue that gets what is published for `receipt.send`. */
async function boundQueue(name: string) {
  const channel = await connection.createConfirmChannel();
  await channel.assertExchange(name, "direct", { durable: true });
  await channel.assertQueue(name, { durable: true });
  await channel.bindQueue(name, name, "receipt.send");
  return channel;
}

it("publishes a message that outlives the broker, with its key and its correlation id", async () => {
  const channel = await boundQueue("published");
  await toRabbitMq(channel, { exchange: "published" })(deliveredMessage(), context);
  const message = await channel.get("published");
  if (message === false) throw new Error("nothing was published");
  expect(JSON.parse(message.content.toString())).toEqual({ charge: "ch_1", amount: 500 });
  expect(message.properties).toMatchObject({
    messageId: "lk_7",
    correlationId: "request-1",
    type: "receipt.send",
    contentType: "application/json",
    deliveryMode: 2,
    timestamp: 1767323045,
    headers: { "idempotency-key": "lk_7", "correlation-id": "request-1", traceparent: tracedBy },
  });
});

it("fails while no queue is bound for a message, and is delivered once one is", async () => {
  const channel = await boundQueue("unbound");
  const deliver = toRabbitMq(channel, { exchange: "unbound", routingKey: ({ topic }) => `${topic}.later` });
  await expect(deliver(deliveredMessage(), context)).rejects.toThrow(
    'no queue is bound to the exchange "unbound" for the key "receipt.send.later"',
  );
  await channel.bindQueue("unbound", "unbound", "receipt.send.later");
  await deliver(deliveredMessage(), context);
  expect(await channel.get("unbound")).not.toBe(false);
});

it("tells each of many messages apart that are under way at once", async () => {
  const channel = await boundQueue("many");
  const deliver = toRabbitMq(channel, {
    exchange: "many",
    routingKey: ({ payload }) => (payload === "lost" ? "nowhere" : "receipt.send"),
  });
  const payloads = Array.from({ length: 100 }, (_, n) => (n % 3 === 0 ? "lost" : "kept"));
  const outcomes = await Promise.allSettled(
    payloads.map((payload, n) => deliver(deliveredMessage({ payload, key: `lk_${n}` }), context)),
  );
  expect(outcomes.map(({ status }) => (status === "rejected" ? "lost" : "kept"))).toEqual(payloads);
});

it("fails on a channel that was closed, and goes on with the channel that replaces it", async () => {
  let channel = await boundQueue("replaced");
  const deliver = toRabbitMq(() => channel, { exchange: "replaced" });
  await channel.close();
  await expect(deliver(deliveredMessage(), context)).rejects.toThrow();
  channel = await connection.createConfirmChannel();
  await deliver(deliveredMessage(), context);
  expect(await channel.get("replaced")).not.toBe(false);
});

it("fails when the broker closes the channel instead of confirming", async () => {
  const channel = await connection.createConfirmChannel();
  channel.on("error", () => {});
  const deliver = toRabbitMq(channel, { exchange: "does-not-exist" });
  await expect(deliver(deliveredMessage(), context)).rejects.toThrow();
});
