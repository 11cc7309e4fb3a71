import { expect, it } from "vitest";
import { type DeliveredMessage, NotDeliverableError } from "../../src/workers/deliveries/deliver.ts";
import { toHandlers } from "../../src/workers/deliveries/handlers.ts";
import { deliveredMessage } from "./outbox-support.ts";

const context = { signal: new AbortController().signal };

it("hands a message to the handler of its topic, and gives back what that answers", async () => {
  const handled: DeliveredMessage[] = [];
  const deliver = toHandlers({
    async "receipt.send"(message, { signal }) {
      expect(signal).toBe(context.signal);
      handled.push(message);
      return { reference: "mail-1" };
    },
    async "refund.send"() {
      throw new Error("the wrong handler");
    },
  });
  expect(await deliver(deliveredMessage(), context)).toEqual({ reference: "mail-1" });
  expect(handled).toEqual([deliveredMessage()]);
});

it.each(["receipt.unknown", "toString", "__proto__"])(
  "refuses the topic %s, which nobody handles, for good and by its name",
  async (topic) => {
    const deliver = toHandlers({ async "receipt.send"() {} });
    const delivery = deliver(deliveredMessage({ topic }), context);
    await expect(delivery).rejects.toBeInstanceOf(NotDeliverableError);
    await expect(delivery).rejects.toThrow(`"${topic}"`);
  },
);
