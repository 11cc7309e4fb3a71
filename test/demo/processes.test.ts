import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type RunningDemo, startDemo } from "../../src/demo/demo.ts";
import { PaymentsSupervisor } from "../../src/demo/payments-supervisor.ts";
import { playgroundView } from "./playground-view.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "latchkey-demo-test-"));
const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function demoWith(options: Parameters<typeof startDemo>[0]): Promise<RunningDemo> {
  const demo = await startDemo(options);
  closers.push(() => demo.close());
  return demo;
}

const isRunning = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

const pidOf = async (url: string) => (await playgroundView(url)).process.pid ?? 0;

const post = (url: string, body: unknown, headers: Record<string, string> = {}) =>
  fetch(url, { method: "POST", headers, body: JSON.stringify(body) });

const order = { scenario: "nothing", isProtected: true, amount: 100 };

describe("the playground's processes", () => {
  it("one that dies just before it is told to end is only heard of", async () => {
    const supervisor = new PaymentsSupervisor({
      databasePath: join(folder, "dying.db"),
      providerUrl: "http://127.0.0.1:1",
      onMessage() {},
      onProcess() {},
    });
    await supervisor.start();
    supervisor.kill();
    // Without a turn of the event loop, so that nobody here has heard of it yet.
    spawnSync("sleep", ["0.2"]);
    await supervisor.end();
    expect(supervisor.state.pid).toBeNull();
  });

  it("end, and their files are removed", async () => {
    const before = new Set(readdirSync(tmpdir()));
    const demo = await startDemo({ port: 0 });
    const added = readdirSync(tmpdir()).filter(
      (name) => name.startsWith("latchkey-demo-") && !before.has(name),
    );
    const pid = await pidOf(demo.url);
    expect(isRunning(pid)).toBe(true);
    await demo.close();
    expect(isRunning(pid)).toBe(false);
    expect(added.length).toBeGreaterThan(0);
    // Another run on this machine may have begun at the same time.
    expect(added.filter((name) => !existsSync(join(tmpdir(), name))).length).toBeGreaterThan(0);
    await expect(fetch(demo.url)).rejects.toThrow();
  });

  it("keep their files in a folder that was given", async () => {
    const kept = join(folder, "kept");
    const demo = await startDemo({ port: 0, folder: kept });
    await demo.close();
    expect(existsSync(join(kept, "demo.db"))).toBe(true);
  });

  it("say that the usual port is taken, and use another one", async () => {
    const taken = createServer();
    taken.on("error", () => {}); // Then somebody else has taken it.
    taken.listen(4500, "127.0.0.1");
    closers.push(() => taken.close());
    await Promise.race([once(taken, "listening"), once(taken, "error")]);
    const said: string[] = [];
    const demo = await demoWith({ log: (line) => said.push(line) });
    expect(said).toEqual(["Port 4500 is taken, so the playground uses another one."]);
    expect(new URL(demo.url).port).not.toBe("4500");
    expect(
      (await fetch(`${demo.url}/api/payments`, { method: "POST", body: JSON.stringify(order) })).status,
    ).toBe(201);
  });

  it("refuse to use another port than the one that was asked for", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    closers.push(() => taken.close());
    await once(taken, "listening");
    const { port } = taken.address() as AddressInfo;
    await expect(startDemo({ port })).rejects.toThrow(`port ${port} is taken: choose another one`);
  });

  it("do what their own page says, and nobody else's", async () => {
    const { url } = await demoWith({ port: 0 });
    for (const site of ["cross-site", "same-site"]) {
      expect((await post(`${url}/api/payments`, order, { "sec-fetch-site": site })).status).toBe(403);
      expect((await post(`${url}/api/reset`, {}, { "sec-fetch-site": site })).status).toBe(403);
    }
    for (const bad of [
      { ...order, amount: -1 },
      { ...order, amount: 0.5 },
      { ...order, scenario: "x" },
      [],
      {},
    ]) {
      expect((await post(`${url}/api/payments`, bad)).status).toBe(400);
    }
    expect((await fetch(`${url}/api/payments`, { method: "POST", body: "{" })).status).toBe(400);
    expect((await post(`${url}/api/payments`, { ...order, more: "x".repeat(20_000) })).status).toBe(400);
    expect((await post(`${url}/on/orders/77/payments`, { amount: 1 })).status).toBe(404);
    expect((await fetch(`${url}/..%2f..%2fpackage.json`)).status).toBe(404);
    expect((await fetch(`${url}/console/api/records`)).status).toBe(401);
    const { payments, process: running } = await playgroundView(url);
    expect(payments).toEqual([]);
    expect(running.restarts).toBe(0);
  });
});

describe("the playground as it is published", () => {
  const program = join(folder, "start.mjs");

  beforeAll(async () => {
    const output = join(folder, "dist");
    await compileEach(join(root, "src"), output);
    cpSync(join(root, "src/stores/sqlite/migrations"), join(output, "stores/sqlite/migrations"), {
      recursive: true,
    });
    symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
    writeFileSync(
      program,
      `import { startDemo } from "./dist/demo/demo.js";
       console.log((await startDemo({ port: 0, folder: ${JSON.stringify(join(folder, "records"))} })).url);`,
    );
    writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  }, 60_000);

  it("pays once although its API was killed, and a playground that is killed itself takes it along", async () => {
    const playground = spawn(process.execPath, [program], { stdio: ["ignore", "pipe", "inherit"] });
    closers.push(() => playground.kill("SIGKILL"));
    const [url] = (await once(createInterface(playground.stdout), "line")) as [string];
    const firstPid = await pidOf(url);

    const begun = await post(`${url}/api/payments`, { ...order, scenario: "server-killed" });
    const { order: number } = (await begun.json()) as { order: string };
    const headers = { "idempotency-key": "killed-once", "content-type": "application/json" };
    const pay = () => post(`${url}/on/orders/${number}/payments`, { amount: 100 }, headers);
    await expect(pay()).rejects.toThrow();
    const replayed = async () => (await pay().catch(() => undefined))?.headers.get("idempotency-replayed");
    await expect.poll(replayed, { timeout: 15_000, interval: 200 }).toBe("true");
    const { payments } = await playgroundView(url);
    expect(payments.at(-1)).toMatchObject({ charges: 1, charged: 100 });

    const pid = await pidOf(url);
    expect(pid).not.toBe(firstPid);
    expect(isRunning(firstPid)).toBe(false);
    expect(isRunning(pid)).toBe(true);
    playground.kill("SIGKILL");
    await expect.poll(() => isRunning(pid), { timeout: 10_000 }).toBe(false);
  }, 40_000);
});

/** File by file, without looking at types: what counts here is where the compiled files look for each other. */
async function compileEach(from: string, to: string): Promise<void> {
  const names = readdirSync(from, { recursive: true, encoding: "utf8" }).filter((name) =>
    name.endsWith(".ts"),
  );
  const { outputFiles } = await build({
    entryPoints: names.map((name) => join(from, name)),
    outbase: from,
    outdir: to,
    format: "esm",
    target: "node20",
    write: false,
  });
  for (const { path, text } of outputFiles) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text.replaceAll(/(["'])(\.{1,2}\/[^"'\n]+)\.ts\1/g, '"$2.js"'));
  }
}
