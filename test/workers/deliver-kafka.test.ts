import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { Kafka, logLevel } from "kafkajs";
import { expect, it } from "vitest";
import { type KafkaProducer, toKafka } from "../../src/workers/deliveries/kafka.ts";
import { deliveredMessage, tracedBy } from "./outbox-support.ts";

const context = { signal: new AbortController().signal };

/** A producer that answers like a broker with one partition. */
function producer(answer: Awaited<ReturnType<KafkaProducer["send"]>>) {
  const sent: unknown[] = [];
  return {
    sent,
    async send(record: Parameters<KafkaProducer["send"]>[0]) {
      sent.push(record);
      return answer;
    },
  };
}

it("sends a message under its partition, with its key and its correlation id", async () => {
  const { sent, send } = producer([{ partition: 3, baseOffset: "42" }]);
  const receipt = await toKafka({ send })(deliveredMessage({ partition: "customer-1" }), context);
  expect(receipt).toEqual({ reference: "3:42" });
  // No more than this: Confluent's client refuses `acks` here.
  expect(sent).toEqual([
    {
      topic: "receipt.send",
      messages: [
        {
          key: "customer-1",
          value: '{"charge":"ch_1","amount":500}',
          headers: { "idempotency-key": "lk_7", "correlation-id": "request-1", traceparent: tracedBy },
        },
      ],
    },
  ]);
});

it("sends no trace where there is none", async () => {
  const { sent, send } = producer([]);
  await toKafka({ send })(deliveredMessage({ traceparent: null }), context);
  expect(sent).toMatchObject([
    { messages: [{ headers: { "idempotency-key": "lk_7", "correlation-id": "request-1" } }] },
  ]);
  expect(JSON.stringify(sent)).not.toContain("traceparent");
});

it("spreads messages without a partition, and sends to the topic that it was told", async () => {
  const { sent, send } = producer([{ partition: 0, offset: "7" }]);
  expect(await toKafka({ send }, { topic: "payments" })(deliveredMessage(), context)).toEqual({
    reference: "0:7",
  });
  await toKafka({ send }, { topic: ({ topic }) => `eu.${topic}` })(deliveredMessage(), context);
  expect(sent).toMatchObject([
    { topic: "payments", messages: [{ key: "lk_7" }] },
    { topic: "eu.receipt.send", messages: [{ key: "lk_7" }] },
  ]);
});

it("has no reference where the broker gave no offset", async () => {
  expect(await toKafka(producer([]))(deliveredMessage(), context)).toEqual({ reference: undefined });
});

it("fails, with the real client, when no broker answers", async () => {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  await once(probe.close(), "close");
  const kafka = new Kafka({
    brokers: [`127.0.0.1:${port}`],
    logLevel: logLevel.NOTHING,
    retry: { retries: 0 },
  });
  const real = kafka.producer();
  await expect(real.connect()).rejects.toThrow();
  await expect(toKafka(real)(deliveredMessage(), context)).rejects.toThrow();
  await real.disconnect();
});
