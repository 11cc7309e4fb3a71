import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import { audit, readOperations } from "../../src/conformance/audit/audit.ts";
import { listening, portOf } from "../adapters/application.ts";
import { node } from "../adapters/frameworks/node.ts";
import { Trial } from "../adapters/harness.ts";

const sample = readFileSync(new URL("fixtures/openapi.yaml", import.meta.url), "utf8");
const read = (text: string) => readOperations(text, { keyHeader: "Idempotency-Key" });

describe("what the document says", () => {
  it("is found through references, at the path and at the operation, whatever the case of the name", () => {
    const rows = read(sample).map(({ method, path, key, needsKey, documents }) => [
      method,
      path,
      needsKey,
      key,
      documents[409],
      documents[422],
    ]);
    expect(rows).toEqual([
      ["POST", "/charges", true, "required", true, true],
      ["POST", "/charges/{id}/capture", true, "required", false, false],
      ["PUT", "/charges/{id}/capture", false, "required", false, false],
      ["DELETE", "/charges/{id}/capture", false, "required", false, false],
      ["POST", "/refunds", true, "none", false, false],
      ["PATCH", "/customers/{id}", true, "optional", false, false],
      ["POST", "/linked", true, "none", false, false],
    ]);
  });

  it("has an example to ask with, or an empty body", () => {
    const bodies = Object.fromEntries(
      read(sample).map(({ method, path, body }) => [`${method} ${path}`, body]),
    );
    expect(bodies["POST /charges"]).toEqual({
      contentType: "application/json",
      text: '{"amount":500,"currency":"usd"}',
    });
    expect(bodies["POST /refunds"]?.text).toBe('{"charge":"ch_1"}');
    expect(bodies["POST /charges/{id}/capture"]).toBeUndefined();
  });

  it("is taken from JSON as well, and an operation outdoes its path", () => {
    const parameter = (required: boolean) => ({ name: "Idempotency-Key", in: "header", required });
    const post = { parameters: [parameter(false)], requestBody: { content: { "application/json": {} } } };
    const document = { openapi: "3.0.3", paths: { "/a": { parameters: [parameter(true)], post } } };
    expect(read(JSON.stringify(document))).toMatchObject([{ key: "optional", body: { text: "{}" } }]);
  });

  it("circles, references to nothing and to other files end", () => {
    const parameters = ["Loop", "Nothing", "constructor"].map((name) => ({
      $ref: `#/components/parameters/${name}`,
    }));
    const document = {
      openapi: "3.1.0",
      paths: { "/a": { post: { parameters: [...parameters, { $ref: "x.yaml" }, null, 7] } }, "/b": null },
      components: { parameters: { Loop: { $ref: "#/components/parameters/Loop" } } },
    };
    expect(read(JSON.stringify(document))).toMatchObject([{ path: "/a", key: "none" }]);
  });

  it.each([
    ["swagger: '2.0'\npaths: {}", /Swagger 2\.0: convert it/],
    ["title: x", /needs a member "openapi"/],
    ["- 1", /not even an object/],
    ["openapi: 3.1.0\npaths: {", /line 2/],
  ])("%j is refused", (text, said) => {
    expect(() => read(text)).toThrow(said);
  });
});

describe("what the API does with a request without a key", () => {
  async function asked(parameters: Readonly<Record<string, string>> = {}) {
    const got: { url: string; key: unknown; body: string; authorization: unknown }[] = [];
    const server = await listening(
      createServer(async (req, res) => {
        let body = "";
        for await (const chunk of req) body += chunk;
        const { url = "", headers } = req;
        got.push({ url, key: headers["idempotency-key"], body, authorization: headers.authorization });
        const answers: Readonly<Record<string, readonly [number, string]>> = {
          "/v1/charges": [400, '{"code":"idempotency_key_required"}'],
          "/v1/refunds": [201, "{}"],
          "/v1/linked": [404, "not found"],
          "/v1/customers/a%2Fb": [503, "later"],
        };
        const [status, text] = answers[url] ?? [422, "Send an Idempotency-Key"];
        res.writeHead(status).end(text);
      }),
    );
    onTestFinished(() => void server.close());
    const audited = await audit(read(sample), {
      url: new URL(`http://127.0.0.1:${portOf(server)}/v1/`),
      headers: { authorization: "Bearer caller" },
      parameters,
      keyHeader: "Idempotency-Key",
      timeoutMs: 5000,
    });
    return { got, audited };
  }

  it("is told apart: refused for the key, accepted, refused for something else, not answered", async () => {
    const { got, audited } = await asked({ id: "a/b" });
    expect(audited.map(({ path, asked, isEnforced }) => [path, asked, isEnforced])).toEqual([
      ["/charges", { kind: "enforced", status: 400 }, true],
      ["/charges/{id}/capture", { kind: "enforced", status: 422 }, true],
      ["/charges/{id}/capture", null, true],
      ["/charges/{id}/capture", null, true],
      ["/refunds", { kind: "accepted", status: 201 }, false],
      ["/customers/{id}", { kind: "cannot-tell", reason: "answered with 503" }, false],
      ["/linked", { kind: "cannot-tell", reason: "refused with 404 for another reason first" }, false],
    ]);
    expect(got.map(({ url }) => url)).toEqual([
      "/v1/charges",
      "/v1/charges/a%2Fb/capture",
      "/v1/refunds",
      "/v1/customers/a%2Fb",
      "/v1/linked",
    ]);
    expect(got[0]).toMatchObject({ body: '{"amount":500,"currency":"usd"}', authorization: "Bearer caller" });
    expect(got.every(({ key }) => key === undefined)).toBe(true);
  });

  it("our own refusal names the key", async () => {
    const trial = new Trial(node);
    onTestFinished(() => trial.close());
    const site = await trial.start();
    const [charges] = await audit(read(sample).slice(0, 1), {
      url: new URL(site.origin),
      headers: {},
      parameters: {},
      keyHeader: "Idempotency-Key",
      timeoutMs: 5000,
    });
    expect(charges).toMatchObject({ path: "/charges", asked: { kind: "enforced", status: 400 } });
    expect(site.executions).toBe(0);
  });

  it.each([[{}], [{ id: ".." }], [{ ID: "1" }]])(
    "nothing is sent to a path without its parameters: %j",
    async (given) => {
      const { got, audited } = await asked(given);
      expect(got.map(({ url }) => url)).toEqual(["/v1/charges", "/v1/refunds", "/v1/linked"]);
      expect(audited[1]).toMatchObject({
        asked: { kind: "not-asked", reason: "no value for id" },
        isEnforced: true,
      });
    },
  );
});
