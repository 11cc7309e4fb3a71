import type { JsonSchema } from "../../src/admin/openapi-schemas.ts";

/** What is wrong with a value, by the part of JSON Schema that the OpenAPI document uses; empty if nothing is. */
export function complaints(value: unknown, schema: JsonSchema, root: JsonSchema, at = ""): readonly string[] {
  const {
    $ref,
    type,
    properties,
    required,
    additionalProperties,
    items,
    anyOf,
    oneOf,
    enum: values,
  } = schema;
  if (typeof $ref === "string") return complaints(value, resolved($ref, root), root, at);
  const choices = (anyOf ?? oneOf) as readonly JsonSchema[] | undefined;
  if (choices !== undefined) {
    const fitting = choices.filter((choice) => complaints(value, choice, root, at).length === 0);
    return fitting.length > 0 ? [] : [`${at} fits none of its choices: ${JSON.stringify(value)}`];
  }
  if ("const" in schema && value !== schema.const) return [`${at} is ${JSON.stringify(value)}`];
  const types = [type ?? []].flat();
  if (types.length > 0 && !typesOf(value).some((one) => types.includes(one))) {
    return [`${at} is ${JSON.stringify(value)}, not ${types}`];
  }
  if (Array.isArray(values) && value !== null && !values.includes(value))
    return [`${at} is ${String(value)}`];
  if (Array.isArray(value)) {
    if (items === undefined) return [];
    return value.flatMap((item, index) => complaints(item, items as JsonSchema, root, `${at}[${index}]`));
  }
  if (typeof value !== "object" || value === null) return [];
  const members = (properties ?? {}) as Record<string, JsonSchema>;
  const missing = ((required ?? []) as string[]).filter((name) => !(name in value));
  return [
    ...missing.map((name) => `${at}.${name} is missing`),
    ...Object.entries(value).flatMap(([name, member]) => {
      const known = members[name] ?? additionalProperties;
      if (known === false) return [`${at}.${name} is not known`];
      return typeof known === "object" ? complaints(member, known as JsonSchema, root, `${at}.${name}`) : [];
    }),
  ];
}

function typesOf(value: unknown): readonly string[] {
  if (value === null) return ["null"];
  if (Array.isArray(value)) return ["array"];
  if (typeof value === "number") return Number.isInteger(value) ? ["number", "integer"] : ["number"];
  return [typeof value];
}

export function resolved(ref: string, root: JsonSchema): JsonSchema {
  let found: unknown = root;
  for (const part of ref.replace(/^#\//, "").split("/")) found = (found as Record<string, unknown>)[part];
  if (typeof found !== "object" || found === null) throw new Error(`${ref} leads nowhere`);
  return found as JsonSchema;
}
