import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Answer, type Sending, send } from "../adapters/client.ts";
import { deferred } from "../support/deferred.ts";
import { gateway, json, type Received, service, settingsOf } from "./support.ts";

/** An option of the configuration, by what changes for whoever is in front of the gateway, behind it, or beside it. */
interface Option {
  readonly what: string;
  /** What both gateways have. */
  readonly base?: string;
  /** What only the second one has. */
  readonly option: string;
  look(site: Site): Promise<unknown>;
  readonly without: unknown;
  readonly with: unknown;
}

type Site = Awaited<ReturnType<typeof siteOf>>;

const secret = "0123456789abcdef".repeat(4);
const token = "swordfish-swordfish";

const options: readonly Option[] = [
  {
    what: "encryption seals what is stored of an answer",
    option: `encryption: { keys: [{ id: a, secret: "${secret}" }] }`,
    async look(site) {
      await site.send({ json: {} });
      return (await site.stored()).includes("shown to its client");
    },
    without: true,
    with: false,
  },
  {
    what: "encryption.perTenant: false leaves no tenant a key that could be shredded",
    base: `encryption: { keys: [{ id: a, secret: "${secret}" }] }`,
    option: `encryption: { keys: [{ id: a, secret: "${secret}" }], perTenant: false }`,
    look: ({ gateway }) =>
      gateway.latchkey.shredTenant({ tenant: "single", by: "ada" }).then(
        () => "shredded",
        (error) => error.name,
      ),
    without: "shredded",
    with: "ConfigError",
  },
  {
    what: "encryption.refusePlain refuses what was stored before there was encryption",
    base: `encryption: { keys: [{ id: a, secret: "${secret}" }] }`,
    option: `encryption: { keys: [{ id: a, secret: "${secret}" }], refusePlain: true }`,
    async look(site) {
      const before = await gateway(settingsOf(site.upstream, `store: sqlite:${site.file}`));
      expect((await send(before.url, { json: {} })).status).toBe(201);
      return (await site.send({ json: {} })).status;
    },
    without: 201,
    with: 503,
  },
  {
    what: "hashKeys keeps keys out of the store",
    option: `hashKeys: "${secret}"`,
    async look(site) {
      await site.send({ key: "order-4711", json: {} });
      return (await site.stored()).includes("order-4711");
    },
    without: true,
    with: false,
  },
  {
    what: "logKeys: digest keeps keys out of the log",
    option: "logKeys: digest",
    async look(site) {
      // Nobody knows what became of it, which is worth a line.
      await site.send({ path: "/cut", key: "order-4711", json: {} });
      const line = () => site.log.find(({ event }) => event === "unknown");
      await expect.poll(line).toBeDefined();
      return JSON.stringify(line()).includes("order-4711");
    },
    without: true,
    with: false,
  },
  {
    what: "problemTypeBase is where every problem is described: of a key, of a request, of upstream",
    option: "problemTypeBase: https://problems.example/",
    async look(site) {
      const problems = [
        await site.send({ key: null, json: {} }),
        await site.send({ method: "GET", path: "/%61", key: null }),
        await site.send({ method: "GET", path: "/cut", key: null }),
      ];
      return problems.map(({ text }) => new URL(JSON.parse(text).type).host);
    },
    without: ["latchkey.dev", "latchkey.dev", "latchkey.dev"],
    with: ["problems.example", "problems.example", "problems.example"],
  },
  {
    what: "expiry: soft remembers that there was an answer",
    base: "statusPath: /status\ndefaults: { retentionMs: 1 }\nworkers: { reaper: { intervalMs: 10 } }",
    option: "expiry: soft",
    async look(site) {
      await site.send({ json: {} });
      const state = async () =>
        (await site.gateway.latchkey.inspect({ tenant: "single", key: "key-1" })).record;
      await expect.poll(async () => (await state())?.state).not.toBe("completed");
      return (await site.send({ method: "GET", path: "/status/key-1", key: null })).status;
    },
    without: 404,
    with: 410,
  },
  {
    what: "admin.responses: hidden keeps bodies from operators",
    base: `admin: { path: /admin, operators: [{ name: ada, token: ${token} }] }`,
    option: `admin: { path: /admin, operators: [{ name: ada, token: ${token} }], responses: hidden }`,
    async look(site) {
      await site.send({ json: {} });
      const record = await site.asOperator("/admin/api/record?scope=single&key=key-1");
      expect(record.status).toBe(200);
      return record.text.includes("shown to its client");
    },
    without: true,
    with: false,
  },
  {
    what: "admin.console: false serves the API and no page",
    base: `admin: { path: /admin, operators: [{ name: ada, token: ${token} }] }`,
    option: `admin: { path: /admin, operators: [{ name: ada, token: ${token} }], console: false }`,
    look: async (site) => [
      (await site.send({ method: "GET", path: "/admin", key: null })).status,
      (await site.asOperator("/admin/api/session")).status,
    ],
    without: [308, 200],
    with: [404, 200],
  },
  {
    what: "metrics.tenantsMax is how many tenants are shown",
    base: `tenant: header:X-Account\nmetrics: { path: /metrics, token: ${token} }`,
    option: `metrics: { path: /metrics, token: ${token}, tenantsMax: 1 }`,
    async look(site) {
      for (const account of ["acme", "acme", "acme", "globex", "globex"]) {
        await site.send({ json: {}, headers: { "x-account": account } });
      }
      const { text } = await site.asOperator("/metrics");
      return text.match(/^api_idempotency_tenant_duplicates\w*\{/gm)?.length;
    },
    without: 2,
    with: 1,
  },
  {
    what: "redact keeps headers and values out of what is stored, and so out of replays",
    option: "defaults: { redact: { headers: [Location], paths: [card] } }",
    async look(site) {
      const first = await site.send({ json: {} });
      expect([first.headers.location, JSON.parse(first.text).card]).toEqual(["/charges/1", "4242"]);
      const replay = await site.send({ json: {} });
      expect(replay.headers["idempotency-replayed"]).toBe("true");
      return [replay.headers.location, JSON.parse(replay.text).card === "4242"];
    },
    without: ["/charges/1", true],
    with: [undefined, false],
  },
  {
    what: "lateArrivals: reject refuses what was first sent too long ago",
    option:
      "defaults: { lateArrivals: reject, requestTime: { header: X-Sent }, requestAgeMsMax: 1m, clockSkewMs: 0 }",
    look: async (site) => {
      const sentAgo = (seconds: number) => ({ "x-sent": `@${Math.floor(Date.now() / 1000) - seconds}` });
      return [
        (await site.send({ key: "late", json: {}, headers: sentAgo(3600) })).status,
        (await site.send({ key: "young", json: {}, headers: sentAgo(1) })).status,
      ];
    },
    without: [201, 201],
    with: [412, 201],
  },
  {
    what: "limits.activeKeys is how many keys a tenant may have",
    option: "limits: { activeKeys: 1 }",
    look: (site) => site.statuses("a", "b", "a"),
    without: [201, 201, 201],
    with: [201, 429, 201],
  },
  {
    what: "limits.storedBytes is how much of a tenant is kept",
    option: "limits: { storedBytes: 400B }",
    look: (site) => site.statuses("a", "b", "a"),
    without: [201, 201, 201],
    with: [201, 429, 201],
  },
];

describe("an option of the configuration", () => {
  for (const { what, base = "", option, look, ...seen } of options) {
    it(what, async () => {
      // The option's own line takes the place of the one that it changes.
      const kept = base.split("\n").filter((line) => line.split(":")[0] !== option.split(":")[0]);

      expect(await look(await siteOf(base))).toEqual(seen.without);
      expect(await look(await siteOf([...kept, option].join("\n")))).toEqual(seen.with);
    });
  }

  it("listen.requestTimeoutMs is how long a client may take for its body", async () => {
    const never = deferred();
    onTestFinished(() => never.resolve());
    const site = await siteOf("listen: { port: 0, headersTimeoutMs: 100ms, requestTimeoutMs: 200ms }");
    const slow = send(site.url, {
      chunks: (async function* () {
        yield "{";
        await never;
      })(),
    });

    expect((await slow).status).toBe(408);
    expect(site.got).toEqual([]);
  });
});

/** A gateway on a file of its own, in front of a service that says more than everybody should hear. */
async function siteOf(config: string) {
  const folder = await mkdtemp(join(tmpdir(), "latchkey-options-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = join(folder, "latchkey.db");
  const upstream = await service(answer);
  const started = await gateway(settingsOf(upstream.url, `store: sqlite:${file}\n${config}\n`));
  const ask = (sending: Sending): Promise<Answer> => send(started.url, sending);
  return {
    ...started,
    upstream: upstream.url,
    got: upstream.got,
    file,
    send: ask,
    asOperator: (path: string) =>
      ask({ method: "GET", path, key: null, headers: { authorization: `Bearer ${token}` } }),
    async statuses(...keys: string[]) {
      const statuses: number[] = [];
      for (const key of keys) statuses.push((await ask({ key, json: {} })).status);
      return statuses;
    },
    /** Every byte that the store has written. */
    async stored() {
      await started.gateway.close();
      const files = [file, `${file}-wal`].map((name) => readFile(name).catch(() => Buffer.alloc(0)));
      return Buffer.concat(await Promise.all(files));
    },
  };
}

function answer({ path }: Received, res: Parameters<typeof json>[0]): void {
  if (path === "/cut") {
    res.destroy();
    return;
  }
  res.setHeader("location", "/charges/1");
  json(res, 201, { is: "shown to its client", card: "4242" });
}
