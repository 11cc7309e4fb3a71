// Writes schema/gateway.schema.json; a test fails while it is not what this would write.
import { writeFileSync } from "node:fs";
import { gatewayJsonSchema } from "./json-schema.ts";

writeFileSync(new URL("../../schema/gateway.schema.json", import.meta.url), gatewayJsonSchema());
