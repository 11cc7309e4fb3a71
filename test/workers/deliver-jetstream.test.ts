import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, headers, type NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, it } from "vitest";
import { toJetStream } from "../../src/workers/deliveries/jetstream.ts";
import { startNats } from "../support/nats-server.ts";
import type { ServerProcess } from "../support/server-process.ts";
import { deliveredMessage, tracedBy } from "./outbox-support.ts";

let server: ServerProcess;
let connection: NatsConnection;

beforeAll(async () => {
  server = await startNats();
  connection = await connect({ servers: server.url });
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: "receipts", subjects: ["receipt.*"] });
}, 60_000);

afterAll(async () => {
  await connection?.close();
  await server?.stop();
});

const context = { signal: new AbortController().signal };

it("publishes a message with its key and its correlation id, and knows its place in the stream", async () => {
  const deliver = toJetStream(jetstream(connection), { headers });
  const receipt = await deliver(deliveredMessage({ key: "lk_published" }), context);
  const manager = await jetstreamManager(connection);
  const stored = await manager.streams.getMessage("receipts", { last_by_subj: "receipt.send" });
  if (stored === null) throw new Error("nothing was stored");
  expect(receipt).toEqual({ reference: `receipts:${stored.seq}` });
  expect(stored.json()).toEqual({ charge: "ch_1", amount: 500 });
  expect(stored.header.get("Nats-Msg-Id")).toBe("lk_published");
  expect(stored.header.get("idempotency-key")).toBe("lk_published");
  expect(stored.header.get("correlation-id")).toBe("request-1");
  expect(stored.header.get("traceparent")).toBe(tracedBy);
});

it("is stored once, however often it is delivered", async () => {
  const deliver = toJetStream(jetstream(connection), { headers, subject: "receipt.repeated" });
  const first = await deliver(deliveredMessage({ key: "lk_repeated", attempt: 1 }), context);
  const second = await deliver(deliveredMessage({ key: "lk_repeated", attempt: 2 }), context);
  expect(second).toEqual(first);
  const manager = await jetstreamManager(connection);
  const { state } = await manager.streams.info("receipts", { subjects_filter: "receipt.repeated" });
  expect(state.subjects).toEqual({ "receipt.repeated": 1 });
});

it("publishes to the subject that is made of the message", async () => {
  const deliver = toJetStream(jetstream(connection), {
    headers,
    subject: ({ partition }) => `receipt.${partition}`,
  });
  await deliver(deliveredMessage({ key: "lk_subject", partition: "customer-1" }), context);
  const manager = await jetstreamManager(connection);
  expect(await manager.streams.getMessage("receipts", { last_by_subj: "receipt.customer-1" })).not.toBeNull();
});

it("fails where no stream takes the subject", async () => {
  const deliver = toJetStream(jetstream(connection), { headers, subject: "nobody.listens" });
  await expect(deliver(deliveredMessage(), context)).rejects.toThrow();
});
