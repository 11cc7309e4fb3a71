import { parse, YAMLParseError } from "yaml";

/** The document cannot be used; the sentence says why. */
export class AuditError extends Error {
  override readonly name = "AuditError";
}

export type JsonObject = { readonly [name: string]: unknown };

/** An OpenAPI document of version 3, of which nothing is believed but that it is one. */
export interface OpenApi {
  readonly root: JsonObject;
  readonly paths: JsonObject;
}

/** Reads YAML, of which JSON is a part. */
export function readOpenApi(text: string): OpenApi {
  const root = objectOf(parsed(text));
  if (root === undefined) throw new AuditError("this is no OpenAPI document: it is not even an object");
  if (root.swagger !== undefined) {
    throw new AuditError(`this is Swagger ${String(root.swagger)}: convert it to OpenAPI 3.0 or 3.1 first`);
  }
  if (!/^3\.\d+/.test(String(root.openapi))) {
    throw new AuditError(
      'this is no OpenAPI document of version 3: it needs a member "openapi" such as 3.1.0',
    );
  }
  return { root, paths: objectOf(root.paths) ?? {} };
}

function parsed(text: string): unknown {
  try {
    return parse(text);
  } catch (error) {
    // The first line says what and where; the others draw it.
    if (error instanceof YAMLParseError)
      throw new AuditError(error.message.split("\n", 1)[0]?.replace(/:$/, "") ?? "");
    throw new AuditError(error instanceof Error ? error.message : String(error));
  }
}

const refsMax = 32; // Longer chains are circles.

/** What a local `$ref` refers to, however long the way is; undefined for circles, other files, and what is not there. */
export function resolved({ root }: OpenApi, value: unknown): JsonObject | undefined {
  let found = objectOf(value);
  for (let step = 0; step < refsMax; step += 1) {
    const ref = found?.$ref;
    if (typeof ref !== "string") return found;
    found = objectOf(ref.startsWith("#/") ? at(root, ref.slice(2)) : undefined);
  }
  return undefined;
}

/** A JSON Pointer (RFC 6901) in a URI fragment. */
function at(root: JsonObject, pointer: string): unknown {
  let value: unknown = root;
  for (const part of pointer.split("/")) {
    const name = decoded(part).replaceAll("~1", "/").replaceAll("~0", "~");
    const holder = objectOf(Array.isArray(value) ? { ...value } : value);
    if (holder === undefined || !Object.hasOwn(holder, name)) return undefined;
    value = holder[name];
  }
  return value;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function objectOf(value: unknown): JsonObject | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as JsonObject)
    : undefined;
}
