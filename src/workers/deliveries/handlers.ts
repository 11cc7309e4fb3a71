import { type Deliver, NotDeliverableError } from "./deliver.ts";

/**
 * Delivers within this process: one function for each topic.
 *
 * @example
 * ```ts
 * toHandlers({ "receipt.send": async ({ payload, key }) => mailer.send(payload, { idempotencyKey: key }) });
 * ```
 */
export function toHandlers(handlers: Readonly<Record<string, Deliver>>): Deliver {
  const byTopic = new Map(Object.entries(handlers));
  return async (message, context) => {
    const handler = byTopic.get(message.topic);
    if (handler === undefined) {
      throw new NotDeliverableError(
        `nobody handles the topic "${message.topic}": add it to toHandlers, and requeue this message`,
      );
    }
    return handler(message, context);
  };
}
