import pg from "pg";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Delivery, Message, NewMessage, Outbox } from "../../src/core/outbox.ts";
import type { Store } from "../../src/core/store.ts";
import * as statements from "../../src/stores/postgres/statements/outbox.ts";
import { outboxName } from "../../src/stores/postgres/statements/phases.ts";
import { listen } from "../../src/stores/postgres/statements/sessions.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { eventually, leaseOf, request, useDatabase } from "./postgres-support.ts";

const database = useDatabase();
let store: Store;
let outbox: Outbox;

beforeAll(() => {
  store = postgresStore(database.pool());
  outbox = outboxOf(store);
});

beforeEach(async () => {
  await database.query("DELETE FROM latchkey_outbox");
  await database.query("UPDATE latchkey_lanes SET owner = NULL, claimed_until = NULL");
});

function outboxOf({ outbox: found }: Store): Outbox {
  if (found === undefined) throw new Error("a Postgres store has an outbox");
  return found;
}

function message(overrides: Partial<NewMessage> = {}): NewMessage {
  return {
    topic: "receipt.send",
    payload: "{}",
    partition: null,
    key: "lk_1",
    correlationId: "request-1",
    scope: "acme",
    traceparent: null,
    delayMs: 0,
    ...overrides,
  };
}

async function enqueue(through: Store, ...messages: readonly NewMessage[]): Promise<void> {
  const lease = await leaseOf(through, request());
  const commit = () => ({ progress: [], onCrash: "retry", messages }) as const;
  expect(await through.transact?.(lease, () => {}, commit)).toMatchObject({ kind: "committed" });
}

const claim = (owner: string, limit = 1000, leaseMs = 60_000) => outbox.claim({ owner, limit, leaseMs });
const delivered = ({ id }: Message): Delivery => ({ kind: "delivered", id });

describe("lanes", () => {
  it("relays that claim at once share the work, and no message is with two of them", async () => {
    await enqueue(store, ...Array.from({ length: 256 }, () => message()));
    const owners = ["a", "b", "c", "d"];
    const batches = await Promise.all(owners.map((owner) => claim(owner)));
    const ids = batches.flat().map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    for (const batch of batches) expect(batch.length).toBeGreaterThan(0);
  });

  it("what a relay found too late counts for nothing when its lane has a new owner", async () => {
    await enqueue(store, message({ partition: "p" }));
    const [late] = (await claim("slow", 10, 0)) as [Message];
    const [again] = (await claim("next")) as [Message];
    expect(again).toEqual(late);
    // It has a lane again, but not that one.
    await enqueue(store, message({ partition: "another" }));
    const [other] = (await claim("slow")) as [Message];
    expect(other.partition).toBe("another");
    await outbox.settle("slow", [delivered(late), delivered(other)]);
    expect(await outbox.counts()).toMatchObject({ waiting: 1 });
    await outbox.settle("next", [delivered(again)]);
    expect(await outbox.counts()).toMatchObject({ waiting: 0 });
  });

  it("a claim that finds nothing holds no lane", async () => {
    await enqueue(store, message({ partition: "p", delayMs: 60_000 }), message({ partition: "p" }));
    expect(await claim("a")).toEqual([]);
    expect(await database.query("SELECT FROM latchkey_lanes WHERE owner IS NOT NULL")).toEqual([]);
  });
});

describe("a hundred thousand messages that wait", () => {
  /** Written past the store, as every process would have written them. */
  async function fill(columns: { partition: string; due: string }): Promise<void> {
    await database.query(`
      INSERT INTO latchkey_outbox (
        lane, topic, partition_key, payload, message_key, correlation_id, due_at, created_at)
      SELECT n % 64, 'topic', ${columns.partition}, '{}', 'key', 'correlation', ${columns.due}, now()
      FROM generate_series(1, 100000) AS n`);
  }

  it("are found by their indexes", async () => {
    await fill({ partition: "CASE WHEN n % 2 = 0 THEN 'p' || n % 640 END", due: "now()" });
    await database.query("ANALYZE latchkey_outbox");
    const plans = {
      claimLanes: [statements.claimLanes, ["me", 1, 16]],
      dueMessages: [statements.dueMessages, ["{1,2,3}", 250]],
      settleMessages: [statements.settleMessages, ["me", '[{"id":"1","kind":"delivered"}]']],
      deadLetters: [statements.deadLetters, [10, null]],
      prune: [statements.prune, [10, 1]],
    } as const;
    for (const [name, [text, values]] of Object.entries(plans)) {
      const rows = await database.query<{ "QUERY PLAN": string }>(`EXPLAIN ${text}`, [...values]);
      const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
      expect(plan, name).not.toMatch(/Seq Scan on latchkey_outbox/);
    }
  });

  it("are delivered once each, many at a time", async () => {
    await fill({ partition: "CASE WHEN n % 2 = 0 THEN 'p' || n % 640 END", due: "now()" });
    const begun = performance.now();
    let count = 0;
    const run = async (owner: string) => {
      while (count < 20_000) {
        const batch = await claim(owner, 250);
        await outbox.settle(owner, batch.map(delivered));
        count += batch.length;
      }
    };
    await Promise.all([run("a"), run("b")]);
    const perSecond = (count / (performance.now() - begun)) * 1000;
    if (process.env.LATCHKEY_TEST_VERBOSE) console.log(`${Math.round(perSecond)} messages per second`);
    expect(await outbox.counts()).toMatchObject({ waiting: 100_000 - count });
    // Far below what an idle machine does, and far above what scanning the table would.
    expect(perSecond).toBeGreaterThan(500);
  });

  it("behind one that is not due cost nothing, and do not hold up the rest", async () => {
    await fill({
      partition: "'crowd'",
      due: "CASE n WHEN 1 THEN now() + interval '1 hour' ELSE now() - interval '1 hour' END",
    });
    await database.query("UPDATE latchkey_outbox SET lane = 0");
    await database.query("ANALYZE latchkey_outbox");
    expect(await claim("me")).toEqual([]);
    await enqueue(store, message({ partition: "alive" }));
    const begun = performance.now();
    const batch = await claim("me");
    expect(batch.map(({ partition }) => partition)).toEqual(["alive"]);
    expect(performance.now() - begun).toBeLessThan(1000);
    expect(await outbox.counts()).toMatchObject({ waiting: 100_001 });
    expect((await outbox.counts()).oldestDueMs).toBeLessThan(60_000);
  });
});

describe("waking", () => {
  let listening: Store;

  beforeEach(() => {
    listening = postgresStore(database.pool(), { listen: true });
    return () => listening.close();
  });

  it("a store that does not listen cannot be waited for", () => {
    expect(outbox.watch).toBeUndefined();
    expect(outboxOf(listening).watch).toBeDefined();
  });

  it("one relay that sleeps is told once, and of the next message after it has found nothing again", async () => {
    const heard: (string | undefined)[] = [];
    const ear = new pg.Client({ connectionString: database.url });
    await ear.connect();
    ear.on("notification", ({ payload }) => heard.push(payload));
    await ear.query(listen);

    await enqueue(store, message());
    const sleeper = outboxOf(listening);
    let woken = 0;
    const unwatch = await sleeper.watch?.(() => {
      woken += 1;
    });
    await enqueue(store, message());
    await enqueue(store, message());
    await eventually(() => woken === 1);
    for (;;) {
      const batch = await sleeper.claim({ owner: "relay", limit: 10, leaseMs: 1000 });
      await sleeper.settle("relay", batch.map(delivered));
      if (batch.length === 0) break;
    }
    await enqueue(store, message());
    // Two connections hear of it, and not at the same moment.
    await eventually(() => woken === 2 && heard.length >= 2);
    expect(heard).toEqual([outboxName, outboxName]);

    unwatch?.();
    await sleeper.claim({ owner: "relay", limit: 10, leaseMs: 1000 });
    await sleeper.settle("relay", []);
    await ear.end();
  });

  it("a message that came while the relay fell asleep is found at once", async () => {
    const sleeper = outboxOf(listening);
    const unwatch = await sleeper.watch?.(() => {});
    await enqueue(store, message());
    await enqueue(store, message());
    expect(await sleeper.claim({ owner: "relay", limit: 10, leaseMs: 1000 })).not.toEqual([]);
    unwatch?.();
  });

  it("a rolled back phase wakes nobody", async () => {
    let woken = 0;
    const unwatch = await outboxOf(listening).watch?.(() => {
      woken += 1;
    });
    const stale = await leaseOf(store, request({ leaseMs: 0, onCrash: "retry" }));
    await leaseOf(store, { ...request({ onCrash: "retry" }), scope: stale.scope, key: stale.key });
    const commit = () => ({ progress: [], onCrash: "retry", messages: [message()] }) as const;
    expect(await store.transact?.(stale, () => {}, commit)).toEqual({ kind: "lost" });
    await enqueue(store, message());
    await eventually(() => woken === 1);
    unwatch?.();
  });
});
