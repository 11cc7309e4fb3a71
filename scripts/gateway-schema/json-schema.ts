import { toJsonSchema } from "@valibot/to-json-schema";
import { gatewaySchema } from "../../src/gateway/config/schema.ts";

/**
 * The published schema, as text: made from what the gateway itself checks with. What JSON Schema cannot say (that a
 * URL is one, that two members fit together) only the gateway says.
 */
export function gatewayJsonSchema(): string {
  const schema = toJsonSchema(gatewaySchema, { typeMode: "input", errorMode: "ignore" });
  const { $schema, description, ...rest } = schema;
  const whole = { $schema, title: "latchkey gateway", description, ...rest };
  return `${JSON.stringify(whole, undefined, 2)}\n`;
}
