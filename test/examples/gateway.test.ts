import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { problemLine } from "../../src/gateway/config/problems.ts";
import { checkText } from "../../src/gateway/config/settings.ts";
import { type Gateway, startGateway } from "../../src/gateway/gateway.ts";
import { jsonLogger } from "../../src/gateway/log.ts";
import { send } from "../adapters/client.ts";

const example = (name: string) => fileURLToPath(new URL(`../../examples/gateway/${name}`, import.meta.url));

describe("the gateway's example, with its service in Python", () => {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-example-"));
  const python = spawn("python3", [example("upstream.py"), "--port", "0"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let service = "";
  let gateway: Gateway;

  beforeAll(async () => {
    const [line] = (await Promise.race([
      once(createInterface(python.stdout), "line"),
      once(python, "error").then(([error]) => {
        throw new Error(`python3 is needed, from your system's packages: ${error}`);
      }),
    ])) as [string];
    service = line.replace("listening on ", "");
    // As it is, but for its ports and for how long a test wants to wait.
    const text = readFileSync(example("gateway.yaml"), "utf8")
      .replace("port: 9464", "port: 0")
      .replace("reconcileAfterMs: 5s", "reconcileAfterMs: 100ms");
    const flags = { upstream: service, port: 0, store: `sqlite:${join(folder, "latchkey.db")}` };
    const { settings, errors } = checkText({ file: "gateway.yaml", text: `${text}\n${quickly}`, flags });
    if (settings === undefined) throw new Error(errors.map(problemLine).join("\n"));
    gateway = await startGateway(settings, { logger: jsonLogger(() => {}) });
  });
  const quickly = "workers: { reconciler: { intervalMs: 50 } }\n";
  afterAll(async () => {
    await gateway?.close({ drainMs: 0 });
    python.kill();
    rmSync(folder, { recursive: true });
  });

  const charge = (key: string, trouble?: string) =>
    send(gateway.url, {
      key,
      json: { amount: 100 },
      headers: { authorization: "Bearer a", ...(trouble === undefined ? {} : { "x-trouble": trouble }) },
    });
  const ledger = async (key: string) => {
    const all = (await (await fetch(`${service}/charges`)).json()) as { readonly key: string }[];
    return all.filter((one) => one.key === key).length;
  };

  it("charges once, however often a charge is sent", async () => {
    const answers = await Promise.all(Array.from({ length: 10 }, () => charge("often")));

    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(await ledger("often")).toBe(1);
  });

  it("asks the ledger for an answer that was lost, and gives it to the retry", async () => {
    expect((await charge("lost", "lost")).status).toBe(502);
    await expect.poll(async () => (await charge("lost")).status, { timeout: 10_000 }).toBe(201);

    expect(JSON.parse((await charge("lost")).text)).toMatchObject({ amount: 100 });
    expect(await ledger("lost")).toBe(1);
  });

  it("charges again what the service is known not to have done", async () => {
    expect((await charge("crash", "crash")).status).toBe(500);
    await expect.poll(async () => (await charge("crash")).status, { timeout: 10_000 }).toBe(201);

    expect(await ledger("crash")).toBe(1);
  });

  it("lets searches through", async () => {
    expect((await send(gateway.url, { path: "/charges/search", key: null, json: {} })).status).toBe(404);
    expect((await send(gateway.url, { path: "/charges/other", key: null, json: {} })).status).toBe(400);
  });
});
