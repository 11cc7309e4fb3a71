import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { JetStreamClient } from "@nats-io/jetstream";
import { headers } from "@nats-io/transport-node";
import type { ConfirmChannel } from "amqplib";
import type { Producer } from "kafkajs";
import { expect, expectTypeOf, it } from "vitest";
import type { Deliver } from "../../src/workers/deliveries/deliver.ts";
import { toJetStream } from "../../src/workers/deliveries/jetstream.ts";
import { type KafkaProducer, toKafka } from "../../src/workers/deliveries/kafka.ts";
import { type RabbitMqConfirmChannel, toRabbitMq } from "../../src/workers/deliveries/rabbitmq.ts";

it("takes the real clients as they are", () => {
  expectTypeOf<ConfirmChannel>().toExtend<RabbitMqConfirmChannel>();
  expectTypeOf<Producer>().toExtend<KafkaProducer>();
  // Never called: the compiler is what tests it.
  const deliveries = (js: JetStreamClient, channel: ConfirmChannel, producer: Producer): Deliver[] => [
    toJetStream(js, { headers }),
    toRabbitMq(channel, { exchange: "payments" }),
    toKafka(producer),
  ];
  expect(deliveries).toBeTypeOf("function");
});

it("does not need any of their packages, not even for their types", () => {
  const folder = fileURLToPath(new URL("../../src/workers/", import.meta.url));
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".ts"),
  );
  expect(files.length).toBeGreaterThan(5);
  for (const file of files) {
    const imported = [
      ...readFileSync(`${folder}${file}`, "utf8").matchAll(/^(?:import|export)\b[^;]*?\bfrom "(.+?)"/gm),
    ];
    for (const [, from] of imported) expect(from, file).toMatch(/^(\.|node:)/);
  }
});
