import { type Deliver, type DeliveredMessage, deliveryHeadersOf } from "./deliver.ts";

/** The part that is needed of a connected producer of `kafkajs`, or of Confluent's client in its KafkaJS form. */
export interface KafkaProducer {
  send(record: {
    topic: string;
    messages: { key: string; value: string; headers: Record<string, string> }[];
  }): Promise<readonly KafkaRecordMetadata[]>;
}

interface KafkaRecordMetadata {
  readonly partition: number;
  readonly offset?: string;
  readonly baseOffset?: string;
}

export interface KafkaOptions {
  /** Kafka's topic for a message; the message's own unless told. */
  readonly topic?: string | ((message: DeliveredMessage) => string);
}

/**
 * Produces to Kafka. Messages of one partition of the outbox have one Kafka key, and so stay in order there too. How
 * many replicas must have a message is left to the producer, because Confluent's refuses to be told with each message;
 * `kafkajs` waits for all of them unless it is configured otherwise. The reference is `partition:offset`.
 *
 * @example
 * ```ts
 * const producer = kafka.producer({ idempotent: true });
 * await producer.connect();
 * toKafka(producer, { topic: "payments" });
 * ```
 */
export function toKafka(producer: KafkaProducer, options: KafkaOptions = {}): Deliver {
  return async (message) => {
    const topic = typeof options.topic === "function" ? options.topic(message) : options.topic;
    const [metadata] = await producer.send({
      topic: topic ?? message.topic,
      messages: [
        {
          key: message.partition ?? message.key,
          value: JSON.stringify(message.payload),
          headers: deliveryHeadersOf(message),
        },
      ],
    });
    const offset = metadata?.baseOffset ?? metadata?.offset;
    return { reference: offset === undefined ? undefined : `${metadata?.partition}:${offset}` };
  };
}
