import { type Deliver, type DeliveredMessage, deliveryHeadersOf } from "./deliver.ts";

/** The part that is needed of the client that `jetstream(connection)` of `@nats-io/jetstream` makes. */
export interface JetStreamPublisher<Headers> {
  publish(
    subject: string,
    payload: string,
    options: { msgID: string; headers: Headers },
  ): Promise<{ readonly stream: string; readonly seq: number }>;
}

export interface JetStreamOptions<Headers> {
  /** `headers` of the NATS client. */
  readonly headers: () => Headers;
  /** The subject of a message; its topic unless told. */
  readonly subject?: string | ((message: DeliveredMessage) => string);
}

/**
 * Publishes to a NATS JetStream, which drops what it has seen within the stream's `duplicate_window`. A message is
 * delivered when the stream has acknowledged it; its reference is `stream:sequence`.
 *
 * @example
 * ```ts
 * import { jetstream } from "@nats-io/jetstream";
 * import { connect, headers } from "@nats-io/transport-node";
 *
 * const connection = await connect({ servers: "nats://localhost" });
 * toJetStream(jetstream(connection), { headers });
 * ```
 */
export function toJetStream<Headers extends { set(name: string, value: string): void }>(
  client: JetStreamPublisher<Headers>,
  options: JetStreamOptions<Headers>,
): Deliver {
  return async (message) => {
    const subject = typeof options.subject === "function" ? options.subject(message) : options.subject;
    const headers = options.headers();
    for (const [name, value] of Object.entries(deliveryHeadersOf(message))) headers.set(name, value);
    const { stream, seq } = await client.publish(subject ?? message.topic, JSON.stringify(message.payload), {
      msgID: message.key,
      headers,
    });
    return { reference: `${stream}:${seq}` };
  };
}
