import { toJsonSchema } from "@valibot/to-json-schema";
import { describe, expect, it } from "vitest";
import { openApi } from "../../src/admin/openapi.ts";
import { type JsonSchema, schemas } from "../../src/admin/openapi-schemas.ts";
import type { Schema } from "../../src/admin/requests.ts";
import { routes } from "../../src/admin/routes.ts";
import { inMemory, served } from "./admin-client.ts";
import { resolved } from "./json-schema.ts";

interface Operation {
  readonly summary: string;
  readonly parameters?: readonly { readonly name: string; readonly required: boolean; readonly in: string }[];
  readonly requestBody?: {
    readonly content: { readonly "application/json": { readonly schema: JsonSchema } };
  };
  readonly responses: Readonly<Record<string, { readonly description: string; readonly content: object }>>;
}

const operations = new Map(
  Object.entries(openApi.paths as unknown as Record<string, Record<string, Operation>>).flatMap(
    ([path, methods]) =>
      Object.entries(methods).map(
        ([method, operation]) => [`${method.toUpperCase()} ${path}`, operation] as const,
      ),
  ),
);

/** What a schema takes, without the words around it. Types that come from a text are told by the text. */
function shapeOf(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(shapeOf);
  if (typeof schema !== "object" || schema === null) return schema;
  const kept = Object.entries(schema).filter(([name]) => name !== "description" && name !== "$schema");
  return Object.fromEntries(kept.map(([name, value]) => [name, shapeOf(value)]));
}

const membersOf = (schema: Schema) =>
  (schema as unknown as { entries: Record<string, { type: string }> }).entries;

describe("the OpenAPI document", () => {
  it("has every endpoint, and no other", () => {
    const known = [...routes].map(([path, { method }]) => `${method} ${path}`);
    expect([...operations.keys()].toSorted()).toEqual(known.toSorted());
  });

  it.each([...routes])("has the parameters and the body that %s takes", (path, { method, query, body }) => {
    const operation = operations.get(`${method} ${path}`);
    const taken = Object.entries(membersOf(query)).map(([name, { type }]) => [name, type !== "optional"]);
    const told = (operation?.parameters ?? []).map(({ name, required }) => [name, required]);
    expect(told).toEqual(taken);
    const schema = operation?.requestBody?.content["application/json"].schema;
    if (body === undefined) {
      expect(schema).toBeUndefined();
      return;
    }
    const written = resolved(String(schema?.$ref), openApi);
    expect(shapeOf(written)).toEqual(shapeOf(toJsonSchema(body as never, { errorMode: "ignore" })));
  });

  it("describes every answer, and every name in it leads somewhere", () => {
    const text = JSON.stringify(openApi);
    const refs = [...text.matchAll(/"\$ref":"([^"]+)"/g)].map(([, ref]) => ref ?? "");
    expect(refs.length).toBeGreaterThan(20);
    for (const ref of refs) expect(resolved(ref, openApi)).toBeDefined();
    const used = new Set(refs.map((ref) => ref.split("/").at(-1)));
    expect(Object.keys(schemas).filter((name) => !used.has(name))).toEqual([]);
    for (const [name, { summary, responses }] of operations) {
      expect([name, summary.length > 0]).toEqual([name, true]);
      for (const status of ["200", "400", "401", "405", "429", "503"]) {
        expect([name, status, typeof responses[status]?.description]).toEqual([name, status, "string"]);
      }
    }
    expect(openApi.openapi).toMatch(/^3\.1\.\d+$/);
  });

  it("is served, to operators", async () => {
    const admin = await served(inMemory());
    expect((await admin.ask("/openapi.json", { token: null })).status).toBe(401);
    expect(await admin.get("/openapi.json")).toEqual(JSON.parse(JSON.stringify(openApi)));
  });
});
