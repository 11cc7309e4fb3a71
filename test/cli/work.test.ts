import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import type { Store } from "../../src/core/store.ts";
import { createLatchkey } from "../../src/latchkey.ts";
import type { SqliteDatabase } from "../../src/stores/sqlite/driver.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { request } from "../support/reserve-request.ts";
import { CommandLine, endOf } from "./command-line.ts";
import { complete } from "./seed.ts";

let latchkey: CommandLine;
beforeAll(async () => {
  latchkey = await CommandLine.bundled();
});
afterAll(() => latchkey.remove());

let files = 0;
function fresh(): { readonly store: Store<SqliteDatabase>; readonly env: Record<string, string> } {
  files += 1;
  const path = join(latchkey.folder, `work-${files}.db`);
  const store = sqliteStore(path);
  onTestFinished(() => store.close());
  return { store, env: { LATCHKEY_STORE: `sqlite:${path}` } };
}

async function serve(
  answer: (url: string, body: string, headers: NodeJS.Dict<string | string[]>) => [number, string],
) {
  const server = createServer(async (req, res) => {
    const [status, body] = answer(`${req.method} ${req.url}`, await text(req), req.headers);
    res.writeHead(status, { "content-type": "application/json" }).end(body);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(async () => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Runs until it is told to end; `said` are the lines of its log. */
async function started(args: readonly string[], env: Record<string, string>) {
  const child = latchkey.start(["work", ...args], { env });
  onTestFinished(() => void child.kill("SIGKILL"));
  const ended = endOf(child);
  if (child.stderr === null) throw new Error("there is no log");
  const lines = createInterface({ input: child.stderr });
  const first = await Promise.race([
    once(lines, "line"),
    ended.then((end) => Promise.reject(new Error(end.stderr))),
  ]);
  return { child, ended, told: JSON.parse(first[0] as string) };
}

it("one round ends what crashed, and says what it did", async () => {
  const { store, env } = fresh();
  await store.reserve(request({ scope: "acme", key: "crashed", leaseMs: 1 }));
  await expect
    .poll(async () => {
      const { code, stdout } = await latchkey.run(["work", "--once", "--json"], { env });
      expect(code).toBe(0);
      return JSON.parse(stdout).workers;
    })
    .toEqual({
      sweeper: { unknown: 1, retryable: 0, unclaimed: 0 },
      reaper: { deleted: 0, expired: 0, messages: 0 },
    });
  expect((await store.read({ scope: "acme", key: "crashed" })).record?.state).toBe("unknown");
});

it("messages go to a webhook, signed; unknown outcomes are asked about where it is told", async () => {
  const { store, env } = fresh();
  const secret = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
  const heard: unknown[] = [];
  const url = await serve((asked, body, headers) => {
    if (asked === "POST /hooks") {
      heard.push(new Webhook(secret).verify(body, headers as Record<string, string>));
      return [204, ""];
    }
    expect(headers.authorization).toBe("Bearer of-news");
    return asked === "GET /by-key/k%2F1?of=acme" ? [200, '{"id":"ch_7"}'] : [404, ""];
  });
  const service = createLatchkey({ store, tenant: "single" });
  await service.run({ tenant: "acme", key: "sends", input: 1 }, (operation) =>
    operation.atomic("sent", (tx) => operation.enqueue(tx, "receipt.send", { to: "ann" })),
  );
  for (const key of ["k/1", "k2"]) {
    const reservation = await store.reserve(request({ scope: "acme", key }));
    if (reservation.kind !== "execute") return expect.unreachable();
    await store.settle(reservation.lease, { kind: "suspend", reason: "no answer", reconcileAfterMs: 0 });
  }
  const { code, stdout, stderr } = await latchkey.run(
    [
      "work",
      "--once",
      "--json",
      "--relay",
      `${url}/hooks`,
      "--reconcile",
      `${url}/by-key/{key}?of={tenant}`,
      "--reconcile-status",
      "201",
    ],
    { env: { ...env, LATCHKEY_WEBHOOK_SECRET: secret, LATCHKEY_RECONCILE_AUTHORIZATION: "Bearer of-news" } },
  );
  expect(code, stderr).toBe(0);
  expect(JSON.parse(stdout).workers).toMatchObject({ relay: { delivered: 1 }, reconciler: { resolved: 2 } });
  expect(heard).toMatchObject([{ type: "receipt.send", data: { to: "ann" } }]);
  const { record } = await store.read({ scope: "acme", key: "k/1" });
  expect(record).toMatchObject({ state: "completed", response: { status: 201 } });
  expect((await store.read({ scope: "acme", key: "k2" })).record?.state).toBe("failed_retryable");
});

it("accepted requests are sent to the service, with the tenant in the header that it knows it by", async () => {
  const { store, env } = fresh();
  const heard: string[] = [];
  const url = await serve((asked, body, headers) => {
    heard.push(`${asked} ${headers["x-tenant"]} ${body}`);
    return [201, "{}"];
  });
  const kept = { tenant: "acme", method: "POST", target: "/charges", headers: [], body: Buffer.from("{}") };
  await store.reserve(
    request({ scope: "acme POST /charges", key: "accepted", mode: "accept", request: kept }),
  );
  const args = ["work", "--once", "--workers", "completer", "--complete", url, "--tenant-header", "x-tenant"];
  const { code, stdout, stderr } = await latchkey.run(args, { env });
  expect(code, stderr).toBe(0);
  expect(stdout).toBe('completer: {"dispatched":1,"failed":0,"gaveUp":0}\n');
  expect(heard).toEqual(["POST /charges acme {}"]);
});

it("runs until SIGTERM, with metrics and an admin API for operators from a file", async () => {
  const { env } = fresh();
  const operators = join(latchkey.folder, "operators.json");
  const token = "a-token-that-is-long-enough";
  writeFileSync(operators, JSON.stringify([{ name: "ada", token }]));
  const { child, ended, told } = await started(
    ["--metrics-port", "0", "--admin-port", "0", "--operators", operators],
    { ...env, LATCHKEY_METRICS_TOKEN: "for-the-scraper" },
  );
  expect(told).toMatchObject({ message: "the workers are running", workers: ["sweeper", "reaper"] });
  expect((await fetch(told.metrics)).status).toBe(401);
  const metrics = await fetch(told.metrics, { headers: { authorization: "Bearer for-the-scraper" } });
  expect(await metrics.text()).toMatch(/^api_idempotency_unknown_waiting 0$/m);
  const session = (bearer: string) =>
    fetch(`${told.admin}/api/session`, { headers: { authorization: `Bearer ${bearer}` } });
  expect(await (await session(token)).json()).toMatchObject({ operator: "ada" });
  expect((await session("another-token-of-that-length")).status).toBe(401);
  child.kill("SIGTERM");
  expect(await ended).toMatchObject({ code: 0, stdout: "" });
});

it.each([
  [
    "JSON",
    '[{"name":"ada","token":"a-token-of-ada-herself"},{"name":"eve","token":"a-token-of-eve:herself","readOnly":true}]',
  ],
  ["a list", "ada:a-token-of-ada-herself, eve:a-token-of-eve:herself:read-only"],
])("operators come from the environment as %s, and one may be there to read only", async (_, operators) => {
  const { store, env } = fresh();
  await complete(store, "acme", "paid");
  const { told } = await started(["--admin-port", "0"], { ...env, LATCHKEY_OPERATORS: operators });
  const ask = (token: string, path: string, init: RequestInit = {}) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
    return fetch(`${told.admin}/api/${path}`, { ...init, headers });
  };
  const session = async (token: string) => (await ask(token, "session")).json();
  expect(await session("a-token-of-ada-herself")).toEqual({ operator: "ada", mayChange: true });
  expect(await session("a-token-of-eve:herself")).toEqual({ operator: "eve", mayChange: false });
  const bust = { method: "POST", body: '{"scope":"acme","key":"paid","attempt":1,"reason":"a test"}' };
  expect((await ask("a-token-of-eve:herself", "record/bust", bust)).status).toBe(403);
  expect((await ask("a-token-of-ada-herself", "record/bust", bust)).status).toBe(200);
});

it("lets a round under way end, unless it is told a second time", async () => {
  const { store, env } = fresh();
  const kept = { tenant: "acme", method: "POST", target: "/slow", headers: [], body: Buffer.from("") };
  await store.reserve(request({ scope: "acme", key: "slow", mode: "accept", request: kept }));
  let asked: () => void = () => {};
  const isAsked = new Promise<void>((resolve) => {
    asked = resolve;
  });
  // Never answers.
  const server = createServer(() => asked()).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { child, ended } = await started(["--complete", url, "--drain", "1h"], env);
  await isAsked;
  child.kill("SIGINT");
  const early = await Promise.race([
    ended,
    new Promise((resolve) => setTimeout(resolve, 200, "still there")),
  ]);
  expect(early).toBe("still there");
  child.kill("SIGINT");
  expect((await ended).code).toBe(130);
});

it("everybody's outcomes are asked about without a tenant where they share one key space", async () => {
  const { store, env } = fresh();
  const asked: string[] = [];
  const url = await serve((question) => {
    asked.push(question);
    return [200, "{}"];
  });
  const reservation = await store.reserve(request({ scope: "single", key: "k1" }));
  if (reservation.kind !== "execute") return expect.unreachable();
  await store.settle(reservation.lease, { kind: "suspend", reason: "no answer", reconcileAfterMs: 0 });
  const args = ["work", "--once", "--single-tenant", "--reconcile", `${url}/by-key/{key}`];
  const { code, stderr } = await latchkey.run(args, { env });
  expect(code, stderr).toBe(0);
  expect(asked).toEqual(["GET /by-key/k1"]);
  expect((await store.read({ scope: "single", key: "k1" })).record?.state).toBe("completed");
});

it.each([
  ["http://a/status", /--reconcile does not name \{key\}.*: put it in; it does not name \{tenant\}/],
  ["http://a/status?of={tenant}", /--reconcile does not name \{key\}/],
  ["http://a/{Key}?of={tenant}", /--reconcile names \{Key\}: there are \{key\}, \{tenant\} and \{route\}/],
  ["http://a/?of={tenant}#{key}", /--reconcile does not name \{key\}/],
  ["http://a/{key}", /--reconcile does not name \{tenant\}.*--single-tenant.*Put it in/],
])("asks nobody by %s, whose answer would be taken for another request's", async (url, said) => {
  const { store, env } = fresh();
  const reservation = await store.reserve(request({ scope: "acme", key: "k1" }));
  if (reservation.kind !== "execute") return expect.unreachable();
  await store.settle(reservation.lease, { kind: "suspend", reason: "no answer", reconcileAfterMs: 0 });
  const { code, stdout, stderr } = await latchkey.run(["work", "--once", "--reconcile", url], { env });
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toMatch(said);
  const { record } = await store.read({ scope: "acme", key: "k1" });
  expect(record).toMatchObject({ state: "unknown", reconcileAttempts: 0 });
});

it("asks nobody about keys that are stored hashed", async () => {
  const env = { ...fresh().env, LATCHKEY_HASH_KEYS: "a secret of at least thirty-two bytes" };
  const args = ["work", "--once", "--reconcile", "http://a/{key}?of={tenant}"];
  const { code, stderr } = await latchkey.run(args, { env });
  expect(code).toBe(2);
  expect(stderr).toMatch(/keys are stored hashed.*leave --reconcile out/);
});

it.each([
  [["--relay", "http://127.0.0.1:1"], /set LATCHKEY_WEBHOOK_SECRET/],
  [["--workers", "relay"], /the relay has to be told where to send to: --relay URL/],
  [["--workers", "sweeper,eraser"], /--workers is "eraser" and must be one of/],
  [["--complete", "ftp://files"], /--complete must be an http/],
  [["--tenant-header", "x-tenant"], /add --complete URL/],
  [["--admin-port", "0"], /pass --operators FILE, or set LATCHKEY_OPERATORS/],
])("refuses %j", async (args, said) => {
  const { env } = fresh();
  const { code, stdout, stderr } = await latchkey.run(["work", ...args], { env });
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(stderr).toMatch(said);
});
