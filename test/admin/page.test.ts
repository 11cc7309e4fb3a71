import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import express from "express";
import { expect, it } from "vitest";
import { adminHandler } from "../../src/admin/admin.ts";
import { StaticFiles } from "../../src/admin/static-files.ts";
import { ada, atTheEnd, clientOf, inMemory } from "./admin-client.ts";

function page(): URL {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-page-"));
  atTheEnd(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, "console", "assets"), { recursive: true });
  writeFileSync(join(folder, "secret.txt"), "not for you");
  writeFileSync(join(folder, "console", "index.html"), "<!doctype html>");
  writeFileSync(join(folder, "console", "assets", "main-Bx3_a9Zk.js"), "run()");
  writeFileSync(join(folder, "console", "icon.svg"), "<svg/>");
  return pathToFileURL(`${join(folder, "console")}/`);
}

async function serving(files: StaticFiles | undefined) {
  const server = createServer((req, res) => {
    if (!files?.serve(req.url ?? "", req, res)) res.writeHead(404).end();
  }).listen(0);
  atTheEnd(() => server.close());
  await once(server, "listening");
  return clientOf(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
}

it("the files of a page are served as what they are, and only they", async () => {
  const client = await serving(StaticFiles.in(page()));
  const index = await client.ask("/");
  expect([index.status, await index.text()]).toEqual([200, "<!doctype html>"]);
  expect(index.headers.get("content-type")).toBe("text/html; charset=utf-8");
  expect(index.headers.get("cache-control")).toBe("no-cache");
  const script = await client.ask("/assets/main-Bx3_a9Zk.js");
  expect(script.headers.get("content-type")).toBe("text/javascript; charset=utf-8");
  expect(script.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
  expect((await client.ask("/icon.svg")).headers.get("cache-control")).toBe("no-cache");
  const head = await client.ask("/", { method: "HEAD" });
  expect([head.status, head.headers.get("content-length"), await head.text()]).toEqual([200, "15", ""]);
  for (const path of [
    "/..%2fsecret.txt",
    "/%2e%2e/secret.txt",
    "/assets",
    "/assets/",
    "/nothing",
    "/index.html/",
  ]) {
    expect([path, (await client.ask(path)).status]).toEqual([path, 404]);
  }
});

it("what a browser has already is not sent again", async () => {
  const client = await serving(StaticFiles.in(page()));
  const etag = (await client.ask("/")).headers.get("etag") ?? "";
  const again = await client.ask("/", { headers: { "if-none-match": etag } });
  expect([again.status, await again.text()]).toEqual([304, ""]);
  expect((await client.ask("/", { headers: { "if-none-match": '"another"' } })).status).toBe(200);
});

it("a page that is not built is none", () => {
  expect(StaticFiles.in(pathToFileURL(join(tmpdir(), "there-is-no-such-folder/")))).toBeUndefined();
});

it("works below a path of Express, and sends whoever forgot the slash there", async () => {
  const handler = adminHandler(inMemory(), { operators: [ada] });
  atTheEnd(() => handler.close());
  const app = express();
  app.use(express.json());
  app.use("/ops/admin", handler);
  const server = app.listen(0);
  atTheEnd(() => server.close());
  await once(server, "listening");
  const client = clientOf(`http://127.0.0.1:${(server.address() as AddressInfo).port}/ops/admin`);
  expect((await client.ask("/api/session")).status).toBe(200);
  const page = await client.ask("");
  expect([page.status, page.headers.get("location")]).toEqual([308, "admin/"]);
  expect((await client.ask("/")).status).not.toBe(308);
  // A parser has read the body already.
  const bust = await client.post("/api/record/bust", {
    scope: "acme",
    key: "a",
    attempt: 1,
    reason: "x",
    more: 1,
  });
  expect(await bust.json()).toMatchObject({ status: 400, errors: [{ at: "more" }] });
});
