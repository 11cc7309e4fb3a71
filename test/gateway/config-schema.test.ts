import { readFileSync } from "node:fs";
import Fastify from "fastify";
import { beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { gatewayJsonSchema } from "../../scripts/gateway-schema/json-schema.ts";
import { problemLine } from "../../src/gateway/config/problems.ts";
import { checkText } from "../../src/gateway/config/settings.ts";
import { badConfigs } from "./bad-configs.ts";

const file = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), "utf8");

/** Every configuration that a reader of the documentation may copy. */
function samples(): { readonly name: string; readonly text: string }[] {
  const page = file("docs/gateway.md");
  const blocks = [...page.matchAll(/^```yaml\n(.*?)^```/gms)].map(([, text = ""], index) => ({
    name: `docs/gateway.md, the ${index + 1}. of its samples`,
    text,
  }));
  const files = ["examples/gateway/gateway.yaml", "deploy/gateway.yaml"];
  return [...blocks, ...files.map((name) => ({ name, text: file(name) }))];
}

const env = {
  LATCHKEY_STORE: "postgres://latchkey@localhost/latchkey",
  ADMIN_TOKEN: "0123456789abcdef",
  LATCHKEY_HASH_KEYS: "0123456789abcdef".repeat(4),
  LATCHKEY_SECRET: "0123456789abcdef".repeat(4),
  UPSTREAM_TOKEN: "token",
};

describe("the published schema", () => {
  // Fastify's own validator, told to judge and to change nothing.
  const judge = Fastify({
    ajv: {
      customOptions: { removeAdditional: false, coerceTypes: false, useDefaults: false, allErrors: true },
    },
  });
  const accepts = async (value: unknown) => {
    const { statusCode } = await judge.inject({ method: "POST", url: "/", payload: value as object });
    return statusCode === 200;
  };
  beforeAll(async () => {
    const { $schema, ...schema } = JSON.parse(file("schema/gateway.schema.json")) as Record<string, unknown>;
    expect($schema).toBe("http://json-schema.org/draft-07/schema#");
    judge.post("/", { schema: { body: schema } }, async () => ({}));
    await judge.ready();
  });

  it("is what the gateway checks with: npm run gateway:schema writes it", () => {
    expect(file("schema/gateway.schema.json")).toBe(gatewayJsonSchema());
  });

  it("refuses what the gateway refuses, as far as a schema can tell", async () => {
    for (const { what, text, bySchema } of badConfigs) {
      expect({ what, isAccepted: await accepts(parse(text)) }).toEqual({ what, isAccepted: !bySchema });
    }
  });

  it("accepts every sample of the documentation and the examples", async () => {
    expect(samples().length).toBeGreaterThan(4);
    for (const { name, text } of samples()) {
      expect({ name, isAccepted: await accepts(parse(text)) }).toEqual({ name, isAccepted: true });
    }
  });

  it("describes every member", () => {
    const lacking: string[] = [];
    interface Described {
      readonly description?: string;
      readonly anyOf?: readonly Described[];
      readonly properties?: Readonly<Record<string, Described>>;
    }
    const look = (schema: Described, path: string) => {
      for (const [name, one] of Object.entries(schema.properties ?? {})) {
        const alternatives = one.anyOf ?? [];
        const isDescribed = [one, ...alternatives].some(({ description }) => description !== undefined);
        if (!isDescribed) lacking.push(`${path}.${name}`);
        for (const inner of [one, ...alternatives]) look(inner, `${path}.${name}`);
      }
    };
    look(JSON.parse(gatewayJsonSchema()), "");
    expect(lacking).toEqual([]);
  });
});

describe("the samples", () => {
  for (const { name, text } of samples()) {
    it(`${name} can be used, and nothing in it is probably not meant`, () => {
      const { errors, warnings } = checkText({ file: name, text, env });
      expect([...errors, ...warnings].map(problemLine)).toEqual([]);
    });
  }

  it("point editors to the schema", () => {
    for (const name of ["examples/gateway/gateway.yaml", "deploy/gateway.yaml"]) {
      const [, path = ""] = /^# yaml-language-server: \$schema=(\S+)$/m.exec(file(name)) ?? [];
      const schema = new URL(path, new URL(`../../${name}`, import.meta.url));
      expect(readFileSync(schema, "utf8")).toContain("latchkey gateway");
    }
  });
});
