import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { bundle, root } from "../support/bundle.ts";
import { freshDatabase } from "../support/database.ts";
import { lastingPort } from "../support/server-process.ts";

interface Row {
  readonly key: string;
  readonly amount: number;
  readonly charge: number;
}

const clients = 8;
const kills = 4;
const leaseMs = 1000;

let folder: string;
let program: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "latchkey-gateways-"));
  await bundle(folder, { gateway: join(root, "test/fixtures/gateway-process.ts") });
  program = join(folder, "gateway.mjs");
}, 60_000);

afterAll(() => rm(folder, { recursive: true, force: true }));

/** The service and its ledger, in Python. */
async function startLedger(
  seed: number,
): Promise<{ url: string; rows(): Promise<Row[]>; stop(): Promise<void> }> {
  const script = fileURLToPath(new URL("./ledger.py", import.meta.url));
  const child = spawn("python3", [script, String(seed)], { stdio: ["pipe", "pipe", "inherit"] });
  const [line] = (await Promise.race([
    once(child.stdout, "data"),
    once(child, "error").then(([error]) => {
      throw new Error("this test needs python3 on the PATH (Debian: apt-get install python3)", {
        cause: error,
      });
    }),
  ])) as [Buffer];
  const url = `http://127.0.0.1:${line.toString().trim()}`;
  return {
    url,
    rows: async () => (await (await fetch(`${url}/ledger`)).json()) as Row[],
    async stop() {
      child.kill();
      await once(child, "exit");
    },
  };
}

/** One of several gateways, on a port that stays the same when it is started again. */
class GatewayProcess {
  readonly url: string;
  readonly #config: string;
  #child: ChildProcess | undefined;

  constructor(port: number, config: object) {
    this.url = `http://127.0.0.1:${port}`;
    this.#config = JSON.stringify({ ...config, listen: { port, host: "127.0.0.1" } });
  }

  async start(): Promise<void> {
    const child = fork(program, [this.#config], { execArgv: [] });
    this.#child = child;
    const ended = once(child, "exit").then(() => "ended" as const);
    if ((await Promise.race([once(child, "message"), ended])) === "ended")
      throw new Error("a gateway did not start");
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  }
}

/** Sends a request with one key, to one gateway or another, until there is an answer that stays. */
async function charge(
  gateways: readonly GatewayProcess[],
  key: string,
  amount: number,
  onLost = () => {},
): Promise<Row> {
  for (let attempt = 0; ; attempt += 1) {
    const gateway = gateways[(amount + attempt) % gateways.length];
    const answer = await fetch(`${gateway?.url}/charges`, {
      method: "POST",
      headers: { "idempotency-key": key, "content-type": "application/json" },
      body: JSON.stringify({ amount }),
    }).then(
      async (response) => ({ status: response.status, text: await response.text() }),
      () => undefined,
    );
    if (answer?.status === 201) return JSON.parse(answer.text) as Row;
    // Anything else is told to be tried again with the same key: the gateway is gone, or the outcome is being found out.
    if (answer !== undefined) expect([409, 502, 503]).toContain(answer.status);
    else onLost();
    await delay(50);
  }
}

it("gateways that are killed under load: nothing is charged twice, and every key is settled with what the ledger says", {
  timeout: 120_000,
}, async () => {
  const database = await freshDatabase();
  const ledger = await startLedger(7);
  const config = {
    upstream: ledger.url,
    store: database.url,
    migrate: true,
    tenant: "single",
    leaseMs,
    routes: [
      {
        name: "charges",
        path: "/charges",
        // Longer than the service takes for anything, so that what it does not know by then it will never do.
        protect: { reconcileAfterMs: 300 },
        reconcile: { url: "/charges/by-key/{key}", answerStatus: 201 },
      },
    ],
    workers: {
      sweeper: { intervalMs: 100 },
      reconciler: { intervalMs: 100, backoff: { baseMs: 100, capMs: 500 } },
    },
  };
  const gateways = [
    new GatewayProcess(await lastingPort(), config),
    new GatewayProcess(await lastingPort(), config),
  ];
  try {
    for (const gateway of gateways) await gateway.start();
    const answers = new Map<string, Row>();
    let isLoaded = true;
    let next = 0;
    let lost = 0;
    const onLost = () => {
      lost += 1;
    };
    const load = Array.from({ length: clients }, async () => {
      while (isLoaded) {
        const amount = next++;
        answers.set(`key-${amount}`, await charge(gateways, `key-${amount}`, amount, onLost));
      }
    });
    for (let kill = 0; kill < kills; kill += 1) {
      const before = answers.size;
      // In the middle of it: some requests are under way, whenever this is.
      for (const giveUpAt = Date.now() + 30_000; answers.size < before + 20 && Date.now() < giveUpAt; )
        await delay(10);
      const gateway = gateways[kill % gateways.length];
      await gateway?.kill();
      await delay(200);
      await gateway?.start();
    }
    isLoaded = false;
    await Promise.all(load);

    const rows = await ledger.rows();
    const charged = grouped(rows);
    const twice = [...charged.values()].filter((of) => of.length > 1);
    expect(twice).toEqual([]);
    // Otherwise nothing was under way when they were killed, and nothing is proven.
    expect(lost).toBeGreaterThanOrEqual(kills);
    expect(answers.size).toBe(next);
    expect(charged.size).toBe(next);
    for (const [key, answer] of answers) expect(answer).toEqual(charged.get(key)?.[0]);
    // And it stays so: either gateway gives the same answer again.
    for (const [key, { amount, ...answer }] of [...answers].slice(0, 20)) {
      expect(await charge(gateways, key, amount)).toEqual({ amount, ...answer });
    }
    expect(await ledger.rows()).toHaveLength(next);
  } finally {
    await Promise.all(gateways.map((gateway) => gateway.kill()));
    await ledger.stop();
    await database.drop();
  }
});

function grouped(rows: readonly Row[]): Map<string, Row[]> {
  const byKey = new Map<string, Row[]>();
  for (const row of rows) byKey.set(row.key, [...(byKey.get(row.key) ?? []), row]);
  return byKey;
}
