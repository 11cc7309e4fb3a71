import { type Deliver, type DeliveredMessage, deliveryHeadersOf } from "./deliver.ts";

/** The part that is needed of a confirm channel of `amqplib`. */
export interface RabbitMqConfirmChannel {
  publish(
    exchange: string,
    routingKey: string,
    content: Buffer,
    options: RabbitMqPublishOptions,
    confirmed: (error: unknown) => void,
  ): boolean;
  on(
    event: "return",
    listener: (message: { readonly properties: { readonly messageId?: unknown } }) => void,
  ): unknown;
}

interface RabbitMqPublishOptions {
  messageId: string;
  correlationId: string;
  type: string;
  contentType: string;
  timestamp: number;
  persistent: boolean;
  mandatory: boolean;
  headers: Record<string, string>;
}

export interface RabbitMqOptions {
  readonly exchange: string;
  /** The routing key of a message; its topic unless told. */
  readonly routingKey?: string | ((message: DeliveredMessage) => string);
}

/**
 * Publishes to RabbitMQ. A message is delivered when the broker has confirmed that it is in a queue: one that no queue
 * is bound for comes back and is tried again. A channel that was closed does not open again, so a process that outlives
 * its connection passes a function that gives the present channel.
 *
 * @example
 * ```ts
 * const connection = await amqp.connect("amqp://localhost");
 * toRabbitMq(await connection.createConfirmChannel(), { exchange: "payments" });
 * ```
 */
export function toRabbitMq(
  channel: RabbitMqConfirmChannel | (() => RabbitMqConfirmChannel | Promise<RabbitMqConfirmChannel>),
  options: RabbitMqOptions,
): Deliver {
  const unconfirmedOf = unconfirmedMessages();
  return async (message) => {
    const present = typeof channel === "function" ? await channel() : channel;
    const unconfirmed = unconfirmedOf(present);
    const routingKey =
      (typeof options.routingKey === "function" ? options.routingKey(message) : options.routingKey) ??
      message.topic;
    await new Promise<void>((resolve, reject) => {
      const content = Buffer.from(JSON.stringify(message.payload));
      const published = { wasReturned: false };
      unconfirmed.set(message.key, published);
      present.publish(options.exchange, routingKey, content, propertiesOf(message), (error) => {
        unconfirmed.delete(message.key);
        // The broker sends a message back before it confirms it.
        if (published.wasReturned) {
          reject(
            new Error(`no queue is bound to the exchange "${options.exchange}" for the key "${routingKey}"`),
          );
        } else if (error) {
          reject(error instanceof Error ? error : new Error("RabbitMQ did not take the message"));
        } else {
          resolve();
        }
      });
    });
  };
}

function propertiesOf(message: DeliveredMessage): RabbitMqPublishOptions {
  return {
    messageId: message.key,
    correlationId: message.correlationId,
    type: message.topic,
    contentType: "application/json",
    timestamp: Math.floor(message.createdAt / 1000),
    persistent: true,
    mandatory: true,
    headers: deliveryHeadersOf(message),
  };
}

type Unconfirmed = Map<string, { wasReturned: boolean }>;

/** What each channel has not confirmed yet, by message key. One listener per channel marks what came back. */
function unconfirmedMessages(): (channel: RabbitMqConfirmChannel) => Unconfirmed {
  const byChannel = new WeakMap<RabbitMqConfirmChannel, Unconfirmed>();
  return (channel) => {
    const known = byChannel.get(channel);
    if (known !== undefined) return known;
    const unconfirmed: Unconfirmed = new Map();
    byChannel.set(channel, unconfirmed);
    channel.on("return", ({ properties }) => {
      const published = unconfirmed.get(String(properties.messageId));
      if (published !== undefined) published.wasReturned = true;
    });
    return unconfirmed;
  };
}
