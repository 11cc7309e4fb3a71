import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { CommandLine, endOf } from "./command-line.ts";

let latchkey: CommandLine;
beforeAll(async () => {
  latchkey = await CommandLine.bundled();
});
afterAll(() => latchkey.remove());

async function upstream(answer: (res: ServerResponse) => void): Promise<string> {
  const server = createServer((_, res) => answer(res)).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function started(args: readonly string[]) {
  const child = latchkey.start(["gateway", "--json", ...args]);
  onTestFinished(() => void child.kill("SIGKILL"));
  let log = "";
  child.stderr?.on("data", (chunk) => {
    log += chunk;
  });
  const ended = endOf(child);
  if (child.stdout === null) throw new Error("there is no stdout");
  const lines = createInterface({ input: child.stdout });
  const first = await Promise.race([
    once(lines, "line"),
    ended.then((end) => Promise.reject(new Error(end.stderr))),
  ]);
  return { child, ended, url: JSON.parse(first[0] as string).url as string, log: () => log };
}

const post = (url: string, key: string) =>
  fetch(`${url}/charges`, {
    method: "POST",
    headers: { "idempotency-key": key, "content-type": "application/json" },
    body: "{}",
  });

it("protects what is behind it, and ends in order with what is under way", { timeout: 60_000 }, async () => {
  let executions = 0;
  let hold: ((res: ServerResponse) => void) | undefined;
  const to = await upstream((res) => {
    executions += 1;
    if (hold === undefined) res.writeHead(201).end(`number ${executions}`);
    else hold(res);
  });
  const store = `sqlite:${join(latchkey.folder, "gateway.db")}`;
  const { child, ended, url, log } = await started([
    "--upstream",
    to,
    "--port",
    "0",
    "--store",
    store,
    "--tenant",
    "single",
  ]);
  expect(await (await post(url, "k1")).text()).toBe("number 1");
  const replayed = await post(url, "k1");
  expect(replayed.headers.get("idempotency-replayed")).toBe("true");
  expect(await replayed.text()).toBe("number 1");

  const held = new Promise<ServerResponse>((resolve) => {
    hold = (res) => {
      hold = undefined;
      resolve(res);
    };
  });
  const late = post(url, "k2");
  const res = await held;
  child.kill("SIGTERM");
  await expect
    .poll(() =>
      fetch(url).then(
        () => "answered",
        () => "refused",
      ),
    )
    .toBe("refused");
  // Whoever asks for a reload now must not end what is waited for.
  child.kill("SIGHUP");
  await expect.poll(log).toMatch(/was not taken over/);
  res.writeHead(201).end("late, and there");
  expect(await (await late).text()).toBe("late, and there");
  expect((await ended).code).toBe(0);
});

it("SIGHUP takes over a changed file; what cannot be used changes nothing", async () => {
  const [one, two] = [await upstream((res) => res.end("one")), await upstream((res) => res.end("two"))];
  const config = join(latchkey.folder, "reload.yaml");
  const write = (text: string) =>
    writeFileSync(config, `store: "sqlite:./reload.db"\ntenant: single\nlisten: { port: 0 }\n${text}\n`);
  write(`upstream: ${one}`);
  const { child, ended, url, log } = await started(["--config", config]);
  const answer = async () => (await fetch(`${url}/`)).text();
  expect(await answer()).toBe("one");
  write(`upstream: ${two}`);
  child.kill("SIGHUP");
  await expect.poll(answer).toBe("two");
  write("upstream: nowhere");
  child.kill("SIGHUP");
  await expect.poll(log).toMatch(/the configuration was not taken over.*upstream/);
  expect(await answer()).toBe("two");
  child.kill("SIGINT");
  expect((await ended).code).toBe(130);
});

it("--check says everything that is wrong, with its line, and opens nothing", async () => {
  const config = join(latchkey.folder, "bad.yaml");
  writeFileSync(
    config,
    "upstream: nowhere\nstore: sqlite:./check.db\ntenant: single\nroutes:\n  - pathh: /x\n",
  );
  const bad = await latchkey.run(["gateway", "--check", "--config", config]);
  expect(bad.code).toBe(2);
  expect(bad.stdout).toMatch(/bad\.yaml:1:\d+: upstream /);
  expect(bad.stdout).toMatch(/bad\.yaml:5:\d+: .*pathh/);
  const { stdout, code } = await latchkey.run(["gateway", "--check", "--json", "--config", config]);
  expect({ code, ...JSON.parse(stdout) }).toMatchObject({
    code: 2,
    isUsable: false,
    warnings: expect.any(Array),
  });

  const flags = ["--upstream", "http://127.0.0.1:1", "--store", "sqlite:./check.db", "--tenant", "single"];
  const good = await latchkey.run(["gateway", "--check", ...flags]);
  expect(good).toMatchObject({ code: 0, stdout: expect.stringMatching(/the configuration can be used\n$/) });
  // The same is refused before a port opens, all of it at once.
  const start = await latchkey.run(["gateway", "--config", config]);
  expect(start).toMatchObject({ code: 2, stdout: "" });
  expect(start.stderr).toMatch(/bad\.yaml:1:.*bad\.yaml:5:/s);
});

it("a store that nobody names is the SQLite file that --help tells of", async () => {
  const { stdout } = await latchkey.run(["gateway", "--help"]);
  const [, path = ""] = /--store URL .*or else\s+sqlite:(\S+?)\.\s/s.exec(stdout) ?? [];
  const file = join(latchkey.folder, path);
  expect(existsSync(file)).toBe(false);
  const to = await upstream((res) => res.end("there"));
  const { child, ended } = await started(["--upstream", to, "--port", "0", "--tenant", "single"]);
  child.kill("SIGTERM");
  expect((await ended).code).toBe(0);
  expect(existsSync(file)).toBe(true);
});

it("a port that is taken is one sentence", async () => {
  const taken = await upstream((res) => res.end());
  const flags = ["--upstream", taken, "--store", "sqlite:./taken.db", "--tenant", "single"];
  const { code, stderr } = await latchkey.run(["gateway", ...flags, "--port", new URL(taken).port]);
  expect(code).toBe(1);
  expect(stderr.trimEnd().split("\n").at(-1)).toMatch(/EADDRINUSE|taken/);
  expect(stderr).not.toMatch(/\n\s+at /);
});

/** From source, because it starts another process from a file beside it. */
it("demo opens the playground, says where, and ends everything with Ctrl-C", async () => {
  const child: ChildProcess = latchkey.startFromSource(["demo", "--json", "--port", "0"]);
  onTestFinished(() => void child.kill("SIGKILL"));
  const ended = endOf(child);
  if (child.stdout === null) return expect.unreachable();
  const [line] = await once(createInterface({ input: child.stdout }), "line");
  const { url } = JSON.parse(line as string);
  const page = await fetch(url);
  expect(page.status).toBe(200);
  expect(await page.text()).toContain("<title>");
  child.kill("SIGINT");
  expect((await ended).code).toBe(130);
  await expect
    .poll(() =>
      fetch(url).then(
        () => "answered",
        () => "refused",
      ),
    )
    .toBe("refused");
});
