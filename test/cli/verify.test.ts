import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WrongServer } from "../conformance/wrong-server.ts";
import { CommandLine } from "./command-line.ts";

let latchkey: CommandLine;
let right: WrongServer;
let wrong: WrongServer;
beforeAll(async () => {
  latchkey = await CommandLine.bundled();
  right = await WrongServer.start();
  wrong = await WrongServer.start("runs without a key");
  writeFileSync(join(latchkey.folder, "credentials"), "Authorization: Bearer from-a-file\nX-Tenant: acme\n");
});
afterAll(() => Promise.all([latchkey.remove(), right.close(), wrong.close()]));

const body = ["--body", '{"amount":{{n}}}', "--pause", "10ms", "--concurrency", "5"];

describe("verify", () => {
  it("ends with 0 for an API that keeps the contract, and shows what it could not know", async () => {
    const { code, stdout, stderr } = await latchkey.run([
      "verify",
      right.url,
      "--header",
      "@credentials",
      ...body,
    ]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^POST http:\/\/127\.0\.0\.1:\d+\/charges, by the profile ietf\n/);
    expect(stdout).toMatch(/pass +the same key with another body is refused/);
    expect(stdout).toMatch(
      /\n\d+ passed, 0 failed, \d+ warnings, \d+ skipped in .*; effects were not looked at\n$/,
    );
  });

  it("ends with 5 for one that does not, and writes every form of the report", async () => {
    const files = ["report.html", "report.xml", "report.json", "report.txt"];
    const reports = files.flatMap((file) => ["--report", file]);
    const { code, stdout, stderr } = await latchkey.run([
      "verify",
      wrong.url,
      "--header",
      "@credentials",
      ...body,
      ...reports,
      "--json",
    ]);
    expect(code).toBe(5);
    expect(JSON.parse(stderr)).toEqual({
      error: { code: "failed-checks", message: expect.stringMatching(/^1 check of \d+ failed$/) },
    });
    const report = JSON.parse(stdout);
    expect(report).toMatchObject({ passed: false, counts: { fail: 1 } });
    const [html = "", xml = "", json = "", text = ""] = files.map((file) =>
      readFileSync(join(latchkey.folder, file), "utf8"),
    );
    expect(html).toMatch(/^<!doctype html>/);
    expect(xml).toMatch(/^<\?xml.*failures="1"/s);
    expect(JSON.parse(json)).toEqual(report);
    expect(text).toMatch(/FAIL +a request without a key is refused/);
    for (const written of [html, xml, json, text, stdout]) expect(written).not.toContain("from-a-file");
  });

  it("ends with 1 where nothing could be checked", async () => {
    const { code, stdout, stderr } = await latchkey.run(["verify", right.url, "--body", "{}"]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/POST \/charges with a new key is answered with 400, so nothing can be checked/);
    expect((await latchkey.run(["verify", "http://127.0.0.1:9/"])).code).toBe(1);
  });

  it.each([
    [["verify"], /verify needs URL/],
    [["verify", "charges"], /url must be an http or https URL/],
    [
      ["verify", "http://h/", "--report", "report.pdf"],
      /--report is "report\.pdf" and must end in one of: html, xml, json, txt/,
    ],
    [["verify", "http://h/", "--profile", "rest"], /must be one of: ietf, stripe, acp/],
    [["verify", "http://h/", "--other-header", "x"], /--other-header is "x" and must be "name: value"/],
    [["verify", "http://h/", "--effects", "http://h/"], /must have \{key\} in it/],
  ])("%j is bad usage", async (args, said) => {
    const { code, stderr } = await latchkey.run(args);
    expect(code).toBe(2);
    expect(stderr).toMatch(said);
  });
});

describe("audit", () => {
  const document = join(import.meta.dirname, "../conformance/fixtures/openapi.yaml");

  it("lists what the document says, and ends with 5 if that is not enough", async () => {
    const { code, stdout, stderr } = await latchkey.run(["audit", document]);
    expect(stdout).toMatch(
      /^METHOD +PATH +DECLARED +409 +422 +ENFORCED\nPOST +\/charges +required +yes +yes +so it says\n/,
    );
    expect(stdout).toMatch(/\nPUT .* needs none\n/);
    expect(stdout).toMatch(/\nPOST +\/refunds +no +no +no +NO\n/);
    expect({ code, stderr }).toEqual({
      code: 5,
      stderr: "latchkey: 3 of 7 operations do not enforce the key\n",
    });
  });

  it("sends nothing before it was told to, and then says what the API did", async () => {
    const url = new URL(wrong.url).origin;
    const effectsBefore = wrong.effects("");
    const asked = await latchkey.run(["audit", document, "--url", url]);
    expect(asked.code).toBe(2);
    expect(asked.stderr).toMatch(
      /3 requests go to 127\.0\.0\.1:\d+ without a key\. .*executes them\.\n.*add --yes/,
    );
    expect(wrong.effects("")).toBe(effectsBefore);

    const refused = await latchkey.inTerminal(["audit", document, "--url", url], { answer: "n" });
    expect(refused.code).toBe(1);
    expect(wrong.effects("")).toBe(effectsBefore);

    const { code, stdout } = await latchkey.run(["audit", document, "--url", url, "--yes", "--json"]);
    expect(code).toBe(5);
    const { operations } = JSON.parse(stdout);
    expect(operations[0]).toMatchObject({
      path: "/charges",
      asked: { kind: "accepted", status: 201 },
      isEnforced: false,
    });
    expect(operations[1]).toMatchObject({ asked: { kind: "not-asked", reason: "no value for id" } });
    expect(wrong.effects("")).toBe(effectsBefore + 1);

    const kept = await latchkey.run([
      "audit",
      document,
      "--url",
      new URL(right.url).origin,
      "--yes",
      "--param",
      "id=1",
    ]);
    expect(kept.stdout).toMatch(/POST +\/charges +required .* refused with 400 +yes\n/);
    expect(kept.code).toBe(0);
  });
  it.each([
    [["audit", "nothing.yaml"], 1, /nothing\.yaml cannot be read/],
    [["audit", "credentials"], 1, /credentials: this is no OpenAPI document of version 3/],
    [["audit", document, "--param", "id=1"], 2, /need --url/],
    [["audit", document, "--url", "host"], 2, /--url is "host" and must be an http or https URL/],
    [["audit", document, "--url", "http://h", "--param", "id"], 2, /--param is "id" and must be NAME=VALUE/],
  ])("%j ends with %s", async (args, expected, said) => {
    const { code, stderr } = await latchkey.run(args);
    expect(code).toBe(expected);
    expect(stderr).toMatch(said);
  });
});
