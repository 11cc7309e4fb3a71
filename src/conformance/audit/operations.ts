import { type JsonObject, type OpenApi, objectOf, resolved } from "./document.ts";

/** One operation of the document that changes something. */
export interface Operation {
  readonly method: string;
  readonly path: string;
  readonly id: string | undefined;
  /** POST and PATCH need a key; PUT and DELETE are idempotent by definition, and listed for information. */
  readonly needsKey: boolean;
  /** How the document declares the header. */
  readonly key: "required" | "optional" | "none";
  /** Whether the document says that these can happen. */
  readonly documents: { readonly 409: boolean; readonly 422: boolean };
  /** A body to ask with: an example of the document, or an empty one; undefined if it takes none. */
  readonly body: { readonly contentType: string; readonly text: string } | undefined;
}

const methods = { post: true, patch: true, put: false, delete: false } as const;

export function operationsIn(document: OpenApi, keyHeader: string): readonly Operation[] {
  const found: Operation[] = [];
  for (const [path, given] of Object.entries(document.paths)) {
    const item = resolved(document, given);
    for (const [method, needsKey] of Object.entries(methods)) {
      const operation = objectOf(item?.[method]);
      if (item === undefined || operation === undefined) continue;
      const { operationId, responses, requestBody } = operation;
      found.push({
        method: method.toUpperCase(),
        path,
        id: typeof operationId === "string" ? operationId : undefined,
        needsKey,
        key: declared(document, keyHeader, item.parameters, operation.parameters),
        documents: { 409: isDocumented(responses, 409), 422: isDocumented(responses, 422) },
        body: exampleOf(document, requestBody),
      });
    }
  }
  return found;
}

/** What the operation says takes the place of what its path says. */
function declared(document: OpenApi, keyHeader: string, ...levels: readonly unknown[]): Operation["key"] {
  let key: Operation["key"] = "none";
  for (const level of levels) {
    for (const given of Array.isArray(level) ? level : []) {
      const parameter = resolved(document, given);
      const isKey =
        parameter?.in === "header" && String(parameter.name).toLowerCase() === keyHeader.toLowerCase();
      if (isKey) key = parameter.required === true ? "required" : "optional";
    }
  }
  return key;
}

/** A range such as `4XX` names none of them: a reader does not learn of a conflict from it. */
function isDocumented(responses: unknown, status: number): boolean {
  return Object.hasOwn(objectOf(responses) ?? {}, String(status));
}

function exampleOf(document: OpenApi, requestBody: unknown): Operation["body"] {
  const content = objectOf(resolved(document, requestBody)?.content);
  if (content === undefined) return undefined;
  const types = Object.keys(content);
  const contentType = types.find((type) => /[/+]json\b/i.test(type)) ?? types[0];
  if (contentType === undefined) return undefined;
  const media = resolved(document, content[contentType]) ?? {};
  const example =
    firstExample(document, media) ?? firstExample(document, resolved(document, media.schema) ?? {});
  const isJson = /[/+]json\b/i.test(contentType);
  if (example === undefined) return { contentType, text: isJson ? "{}" : "" };
  return { contentType, text: !isJson && typeof example === "string" ? example : JSON.stringify(example) };
}

/** Of a media type, or of a schema: an example, the first of its examples, or a default. */
function firstExample(document: OpenApi, { example, examples, default: byDefault }: JsonObject): unknown {
  if (example !== undefined) return example;
  if (Array.isArray(examples)) return examples[0];
  const [first] = Object.values(objectOf(examples) ?? {});
  return resolved(document, first)?.value ?? byDefault;
}
