import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { expect, it } from "vitest";
import type { RecordId } from "../../src/core/record.ts";
import type { Lease, Store } from "../../src/core/store.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { seededRandom } from "../../src/testing/index.ts";
import { startRedis } from "../support/redis-server.ts";
import { type Deeds, hostileHand, type Random } from "./layered-proof/hostile-hand.ts";
import { Ledger } from "./layered-proof/ledger.ts";
import { type Outcome, type Process, startProcess, timed } from "./layered-proof/processes.ts";
import { again, request, useDatabase } from "./postgres-support.ts";

/*
 * Several processes over one Postgres and one Redis execute, repeat, mistake, bust, fail and forget requests for few
 * keys, while a hostile hand does to Redis what it can. Whatever Redis had a part in is held against what the truth
 * could have said at that time. The seed decides what is tried, and the machine what meets what: to repeat a failure,
 * run it some times with the seed that was printed, in LATCHKEY_TEST_SEED.
 */

const database = useDatabase();
const seed = Number(process.env.LATCHKEY_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));
const spanMs = Number(process.env.LATCHKEY_TEST_PROOF_MS ?? 20_000);
const spanMsMax = 3 * spanMs;

const ids: readonly RecordId[] = ["acme", "rival"].flatMap((scope) =>
  ["one", "two", "three", "four"].map((key) => ({ scope, key })),
);

/** A connection that listens has last been asked whether it is still there. */
const endListeners = `
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE '%pg_backend_pid()%' AND pid <> pg_backend_pid()`;

let numbers = 0;

/** What many callers do, and what they have begun. */
class Callers {
  readonly executing = new Set<Promise<void>>();
  readonly failures: unknown[] = [];
  readonly #processes: readonly Process[];
  readonly #ledger: Ledger;

  readonly #isOver: () => boolean;

  constructor(processes: readonly Process[], ledger: Ledger, isOver: () => boolean) {
    this.#processes = processes;
    this.#ledger = ledger;
    this.#isOver = isOver;
  }

  async act(process: Process, random: Random): Promise<void> {
    const id = any(ids, random);
    const roll = random();
    if (roll < 0.03) await this.bust(process, id);
    else if (roll < 0.08) await this.#resolve(process, id, random);
    else await this.ask(process, id, random);
  }

  /** Executes what it is let through with, beside everything else. */
  async ask(process: Process, id: RecordId, random: Random): Promise<void> {
    const fingerprint = random() < 0.9 ? "v1:usual" : "v1:other";
    const crashes = random() < 0.1;
    const leaseMs = crashes ? 200 : 3_000;
    const onCrash = random() < 0.5 ? "retry" : "reconcile";
    const wanted = again(request({ ...id, fingerprint, leaseMs, onCrash, reconcileAfterMs: 0 }));
    const lease = await process.reserve(wanted);
    if (lease === undefined || crashes) return;
    const execution = this.#execute(process, lease, fingerprint, random);
    this.executing.add(execution);
    execution.catch((error) => this.failures.push(error)).finally(() => this.executing.delete(execution));
  }

  async #execute(process: Process, lease: Lease, fingerprint: string, random: Random): Promise<void> {
    const isLong = random() < 0.3;
    await sleep(isLong ? 600 + random() * 1_200 : random() * 15);
    if (random() < 0.3) await process.store.renew([lease], 3_000);
    await process.settle(
      lease,
      fingerprint,
      isLong && random() < 0.4 ? { kind: "suspend" } : outcome(random),
    );
    // What is not true any more would be said now.
    if (isLong && !this.#isOver()) await this.askEverybody(lease, random);
  }

  async askEverybody({ scope, key }: RecordId, random: Random): Promise<void> {
    await Promise.all(this.#processes.map((process) => this.ask(process, { scope, key }, random)));
  }

  async bust(process: Pick<Process, "number" | "store">, id: RecordId): Promise<void> {
    const target = this.#ledger.bustable(id);
    if (target === undefined) return;
    const said = { by: "ada", reason: "wrong", attempt: target.fence };
    const { span, answer } = await timed(() => process.store.bust(id, said));
    if (answer.kind === "busted") target.busted(process.number, span);
  }

  async #resolve(process: Process, id: RecordId, random: Random): Promise<void> {
    const { record } = await process.store.read(id);
    if (record?.state !== "unknown") return;
    const body = newBody(random);
    const response = { kind: "full", status: 200, headers: [], body } as const;
    this.#ledger.offered(id, record.fence, record.fingerprint, body);
    const resolution = { kind: "complete", response, retentionMs: 500 } as const;
    const answer = await process.store.resolve(id, record.fence, resolution, "ada");
    this.#ledger.confirmed(body, answer.kind === "resolved" ? answer.expiresAt : undefined);
  }
}

function any<T>(items: readonly T[], random: Random): T {
  return items[Math.floor(random() * items.length)] as T;
}

function outcome(random: Random): Outcome {
  const roll = random();
  if (roll < 0.25) return { kind: "release" };
  if (roll < 0.35) return { kind: "suspend" };
  const retentionMs = random() < 0.5 ? 50 + random() * 400 : 2_000;
  return {
    kind: "complete",
    body: newBody(random),
    retentionMs: Math.floor(retentionMs),
    inPhase: random() < 0.3,
  };
}

function newBody(random: Random): Buffer {
  numbers += 1;
  const noise = Buffer.from(Array.from({ length: Math.floor(random() * 600) }, () => random() * 256));
  return Buffer.concat([Buffer.from(`${numbers} `), noise]);
}

it("whatever becomes of the front, it never says what the truth could not have said", {
  timeout: 90_000,
}, async () => {
  console.log(`layered proof: LATCHKEY_TEST_SEED=${seed}`);
  const server = await startRedis({ args: [] });
  const ledger = new Ledger();
  const ioredis = () => new Redis(server.url, { lazyConnect: true });
  const clients = [ioredis(), createClient({ url: server.url }), ioredis()];
  const processes = clients.map((client, number) => startProcess(number, database.pool(), client, ledger));
  const begunAt = performance.now();
  const isOver = () => {
    const ms = performance.now() - begunAt;
    return ms > spanMs && (saidEnough(ledger) || ms > spanMsMax);
  };

  const callers = new Callers(processes, ledger, isOver);
  const operator = { number: processes.length, store: postgresStore(database.pool()) as Store };
  const calling = processes.flatMap((process, number) =>
    Array.from({ length: 5 }, async (_, caller) => {
      const random = seededRandom(seed + 100 * number + caller);
      while (!isOver()) {
        await callers.act(process, random).catch((error) => callers.failures.push(error));
        await sleep(random() * 6);
      }
    }),
  );
  const random = seededRandom(seed);
  // What is busted while nobody listens must not be replayed.
  const deafen = async () => {
    await database.query(endListeners);
    await Promise.all(ids.map((id) => callers.bust(operator, id)));
    for (let times = 0; times < 5; times += 1) {
      await Promise.all(ids.map((id) => callers.askEverybody(id, random)));
    }
  };
  const [deeds] = await Promise.all([hostileHand({ server, random, deafen, isOver }), ...calling]);
  while (callers.executing.size > 0) await Promise.allSettled(callers.executing);
  ledger.finish();
  report(ledger, deeds, callers.failures);

  expect(ledger.violations.slice(0, 10)).toEqual([]);
  expect(callers.failures.slice(0, 3)).toEqual([]);
  // It proves something only if the front had its say, and the hand did its worst.
  expect(saidEnough(ledger)).toBe(true);

  for (const { store } of processes) await store.close();
  await server.stop();
});

/** On a busy machine that takes longer. */
function saidEnough({ counts }: Ledger): boolean {
  return counts.replay > 300 && counts.inFlight > 30 && counts.busts > 30;
}

function report({ counts, violations }: Ledger, deeds: Deeds, failures: readonly unknown[]): void {
  console.log(JSON.stringify({ counts, violations: violations.length, failures: failures.length, deeds }));
}
