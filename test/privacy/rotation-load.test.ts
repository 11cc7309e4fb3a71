import { randomBytes } from "node:crypto";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Store } from "../../src/core/store.ts";
import type { KeyRing, RingKey } from "../../src/index.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { useDatabase } from "../stores/postgres-support.ts";
import { useFolder } from "../stores/sqlite-support.ts";
import { firstKey, ring, secondKey, service } from "./support.ts";

const place = useFolder();
const database = useDatabase();
const tenants = ["acme", "globex", "initech"];

/** Each time as another process would: with connections of its own. */
const stores: Readonly<Record<string, () => Store>> = {
  SQLite: () => sqliteStore(place.path) as Store,
  Postgres: () => postgresStore(database.pool({ max: 4 })) as Store,
};

describe.each(Object.entries(stores))("rotating the key of a %s under load", (_name, open) => {
  it("loses nothing and executes nothing twice, up to the retirement of the old key and beyond it", async () => {
    const executed = new Map<string, number>();
    const processOf = (...keys: RingKey[]) => {
      const encryption = ring({}, keys);
      const api = service({ store: open(), encryption }, {}, async (request) => {
        const name = `${request.headers.get("x-tenant")} ${request.headers.get("idempotency-key")}`;
        executed.set(name, (executed.get(name) ?? 0) + 1);
        await new Promise(setImmediate);
        return new Response(randomBytes(300), { status: 201 });
      });
      return { api, encryption };
    };
    const one = processOf(firstKey, secondKey);
    const other = processOf(firstKey, secondKey);
    const load = new Load([one, other]);
    // Also where something fails before: it would go on for ever.
    onTestFinished(async () => void (await load.end()));

    await load.goOn();
    one.encryption.rotate(secondKey);
    await load.goOn();
    other.encryption.rotate(secondKey);
    const old = await load.beginEra();
    // Everything from before is still there for everybody, while new requests come.
    for (const { api } of [one, other]) await expectReplays(api, old);
    for (const tenant of tenants) await one.api.latchkey.resealTenant({ tenant });

    one.encryption.retire("first");
    await load.goOn();
    other.encryption.retire("first");
    // One that has never had the old key, and has to find the tenants' secrets sealed with the new one.
    const late = processOf(secondKey);
    load.processes.push(late);
    await load.goOn();
    const current = await load.end();
    for (const { api } of [one, other, late]) await expectReplays(api, current);

    // What the old key has sealed is refused rather than executed, and is there again as soon as the key is.
    for (const { api } of [one, other, late]) {
      const refused = await refusedOf(api, old);
      expect(refused.length).toBeGreaterThan(clients * turnsEach);
      expect(new Set(refused)).toEqual(new Set([503]));
    }
    const both = processOf(secondKey, firstKey);
    await expectReplays(both.api, old);
    expect(load.problems).toEqual([]);
    expect(executed.size).toBe(old.size + current.size);
    expect([...executed.values()].filter((times) => times !== 1)).toEqual([]);
    for (const { api } of [one, other, late, both]) await api.latchkey.close();
  });
});

type Api = ReturnType<typeof service>;

/** Requests that come all the time, to all processes, and retries of what was answered, to any of them. */
class Load {
  readonly processes: { readonly api: Api; readonly encryption: KeyRing }[];
  readonly problems: string[] = [];
  /** Of the era that is now, by tenant and key. */
  #answers = new Map<string, Buffer>();
  #sent = 0;
  #isOver = false;
  readonly #clients: Promise<void>[];
  /** Grows when a client has come round; those that began before another era end with the turn. */
  readonly #turns: number[] = [];

  constructor(processes: Load["processes"]) {
    this.processes = [...processes];
    this.#clients = Array.from({ length: clients }, (_, nth) => this.#client(nth));
  }

  /** Resolves when each client has been to each process with each tenant, and with retries. */
  async goOn(): Promise<void> {
    const until = this.#turns.map((turns) => turns + turnsEach);
    await expect
      .poll(() => this.#turns.every((turns, nth) => turns >= (until[nth] ?? 0)), patience)
      .toBe(true);
  }

  /** What was answered until now, and is not asked for by the load any more. */
  async beginEra(): Promise<ReadonlyMap<string, Buffer>> {
    const before = this.#answers;
    this.#answers = new Map();
    await this.goOn();
    return before;
  }

  async end(): Promise<ReadonlyMap<string, Buffer>> {
    this.#isOver = true;
    await Promise.all(this.#clients);
    return this.#answers;
  }

  async #client(nth: number): Promise<void> {
    this.#turns[nth] = 0;
    for (let turn = 0; !this.#isOver; turn += 1) {
      const answers = this.#answers;
      const name = `${tenants[turn % tenants.length]} ${nth}-${++this.#sent}`;
      const answer = await post(this.#process(nth + turn), name);
      if (answer.status !== 201) this.problems.push(`${name}: ${answer.status}`);
      answers.set(name, await bytesOf(answer));
      const [earlier, first] = [...answers][(turn * 7) % answers.size] ?? [];
      if (earlier !== undefined) {
        const replay = await bytesOf(await post(this.#process(nth + turn + 1), earlier));
        if (first?.equals(replay) !== true) this.problems.push(`${earlier} was answered otherwise`);
      }
      this.#turns[nth] = turn + 1;
    }
  }

  #process(nth: number): Api {
    return (this.processes[nth % this.processes.length] ?? expect.fail()).api;
  }
}

const clients = 6;
/** Each of three tenants at each of three processes. */
const turnsEach = 9;
const patience = { timeout: 30_000, interval: 20 };

function post(api: Api, name: string): Promise<Response> {
  const [tenant = "", key = ""] = name.split(" ");
  return api.post(key, "hello", tenant);
}

async function bytesOf(answer: Response): Promise<Buffer> {
  return Buffer.from(await answer.arrayBuffer());
}

/** The statuses of what is not replayed. */
async function refusedOf(api: Api, answers: ReadonlyMap<string, Buffer>): Promise<number[]> {
  const replies = await Promise.all([...answers.keys()].map((name) => post(api, name)));
  return replies
    .filter(({ headers }) => headers.get("idempotency-replayed") !== "true")
    .map(({ status }) => status);
}

async function expectReplays(api: Api, answers: ReadonlyMap<string, Buffer>): Promise<void> {
  expect(answers.size).toBeGreaterThan(clients * turnsEach);
  for (const [name, first] of answers) {
    const replay = await post(api, name);
    expect(replay.headers.get("idempotency-replayed")).toBe("true");
    expect((await bytesOf(replay)).equals(first)).toBe(true);
  }
}
