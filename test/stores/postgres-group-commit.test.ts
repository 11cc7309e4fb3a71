import type pg from "pg";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import { noProgress } from "../../src/core/phase.ts";
import type { Lease, ReserveRequest, Store } from "../../src/core/store.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import {
  again,
  complete,
  eventually,
  explained,
  leaseOf,
  manyRecords,
  request,
  response,
  spied,
  useDatabase,
} from "./postgres-support.ts";

const database = useDatabase();
let pool: pg.Pool;

beforeAll(() => {
  pool = database.pool({ max: 20 });
});

function requests(count: number, overrides: Partial<ReserveRequest> = {}): ReserveRequest[] {
  return Array.from({ length: count }, () => request(overrides));
}

async function leases(store: Store, wanted: readonly ReserveRequest[]): Promise<Lease[]> {
  return Promise.all(wanted.map((each) => leaseOf(store, each)));
}

describe("how many statements are sent", () => {
  /** The statements of `work`, each up to its parameters. */
  async function sent(work: (store: Store) => Promise<unknown>, options = {}): Promise<string[]> {
    const texts: string[] = [];
    const store = postgresStore(
      spied(pool, (text) => void texts.push(text)),
      options,
    );
    await work(store);
    return texts;
  }
  const roundOf = (count: number) => async (store: Store) => {
    const held = await leases(store, requests(count));
    await Promise.all(held.map((lease) => store.settle(lease, complete)));
  };

  it.each([
    [64, 2],
    [256, 3],
  ])(
    "%i fresh requests at once take %i statements to reserve and as many to settle",
    async (count, statements) => {
      const texts = await sent(roundOf(count));
      expect(texts.map((text) => /latchkey_\w+_batch/.exec(text)?.[0])).toEqual([
        ...Array(statements).fill("latchkey_reserve_batch"),
        ...Array(statements).fill("latchkey_complete_batch"),
      ]);
    },
  );

  it("256 replays at once take three", async () => {
    const wanted = requests(256);
    const store = postgresStore(pool);
    await Promise.all((await leases(store, wanted)).map((lease) => store.settle(lease, complete)));
    expect(await sent((fresh) => Promise.all(wanted.map((each) => fresh.reserve(again(each)))))).toHaveLength(
      3,
    );
  });

  it("releases, suspensions and the progress of executions are gathered as well", async () => {
    const store = postgresStore(pool);
    const held = await leases(store, requests(40));
    const texts = await sent(async (other) => {
      await Promise.all(
        held.map((lease) => other.advance(lease, { progress: noProgress, onCrash: "retry" })),
      );
      await Promise.all(
        held.map((lease, index) =>
          other.settle(
            lease,
            index % 2 === 0
              ? { kind: "release", reason: "nothing was sent", retentionMs: 60_000 }
              : { kind: "suspend", reason: "no answer came", reconcileAfterMs: 0 },
          ),
        ),
      );
    });
    expect(texts.map((text) => /latchkey_\w+_batch/.exec(text)?.[0])).toEqual([
      "latchkey_advance_batch",
      "latchkey_advance_batch",
      "latchkey_give_up_batch",
      "latchkey_give_up_batch",
    ]);
  });

  it("switched off, each call has the statement that a lone call has", async () => {
    const off = await sent(roundOf(8), { groupCommit: false });
    expect(off).toHaveLength(16);
    expect(new Set(off).size).toBe(2);
    expect([...new Set(off)]).toEqual(await sent(roundOf(1), { groupCommit: false }));
    expect(off.join()).not.toContain("_batch");
  });

  it("groupCommit must be true or false", () => {
    expect(() => postgresStore(pool, { groupCommit: "yes" as never })).toThrow(/groupCommit.*true or false/);
  });
});

describe("neighbours in a batch", () => {
  it("each gets its own answer, whatever its record is", async () => {
    const store = postgresStore(pool);
    const [done, running, failed, expired] = requests(4);
    if (!done || !running || !failed || !expired) throw new Error("four were asked for");
    await store.settle(await leaseOf(store, done), complete);
    await leaseOf(store, running);
    await store.settle(await leaseOf(store, failed), { kind: "release", reason: "r", retentionMs: 60_000 });
    await store.settle(await leaseOf(store, expired), { ...complete, retentionMs: 0 });
    const other = again(done, { fingerprint: "v1:other" });
    const fresh = requests(20);
    for (let round = 0; round < 2; round += 1) {
      // The second time most are there already, so that records are looked for before any is inserted.
      const answers = await Promise.all(
        [done, running, other, ...fresh].map((each) =>
          store.reserve(again(each, { fingerprint: each.fingerprint })),
        ),
      );
      expect(answers.map(({ kind }) => kind)).toEqual([
        "replay",
        "inFlight",
        "mismatch",
        ...fresh.map(() => (round === 0 ? "execute" : "inFlight")),
      ]);
      expect(answers[0]).toMatchObject({ response: { status: 201, body: Buffer.from("done") } });
    }
    const answers = await Promise.all(
      [failed, expired, ...requests(5)].map((each) => store.reserve(again(each))),
    );
    expect(answers).toMatchObject([
      { kind: "execute", after: "failed_retryable", lease: { fence: 2 } },
      { kind: "execute", after: "expired", lease: { fence: 2 } },
      ...Array.from({ length: 5 }, () => ({ kind: "execute", after: "absent", lease: { fence: 1 } })),
    ]);
  });

  it("routes, policies and kept requests are not mixed up", async () => {
    const store = postgresStore(pool);
    const bytes = new Uint8Array([0, 255, 92, 34]);
    const wanted = Array.from({ length: 30 }, (_, index) =>
      request({
        mode: index % 3 === 0 ? "accept" : "execute",
        onCrash: index % 2 === 0 ? "retry" : "resume",
        route: index % 5 === 0 ? undefined : `route ${index % 7}, "quoted" \\ ünï`,
        retentionMs: 60_000 + index,
        request:
          index % 3 === 0 || index % 4 === 0
            ? { method: "POST", target: `/${index}`, tenant: "t", headers: [], body: bytes }
            : undefined,
      }),
    );
    await Promise.all(wanted.map((each) => store.reserve(each)));
    for (const [index, each] of wanted.entries()) {
      const { record } = await store.read(each);
      expect(record, `${index}`).toMatchObject({
        state: each.mode === "accept" ? "pending" : "in_progress",
        onCrash: each.onCrash,
        route: each.route,
      });
      expect((record?.expiresAt ?? 0) - (record?.createdAt ?? 0)).toBe(each.retentionMs);
      const [row] = await database.query<{ request_body: Buffer | null }>(
        "SELECT request_body FROM latchkey_records WHERE scope = $1 AND key = $2",
        [each.scope, each.key],
      );
      expect(row?.request_body && new Uint8Array(row.request_body)).toEqual(each.request?.body ?? null);
    }
  });

  it("the same key many times at once: one executes, and the others are told so", async () => {
    const store = postgresStore(pool);
    const wanted = requests(10).flatMap((each) => Array.from({ length: 10 }, () => again(each)));
    const answers = await Promise.all(wanted.map((each) => store.reserve(each)));
    const kinds = answers.map(({ kind }) => kind);
    expect(kinds.filter((kind) => kind === "execute")).toHaveLength(10);
    expect(kinds.filter((kind) => kind === "inFlight")).toHaveLength(90);
  });

  it("what one says about a record comes before what it says next, though it did not wait", async () => {
    const store = postgresStore(pool);
    const held = await leases(store, requests(30));
    const progress = [{ kind: "atomic", name: "done", result: "1" }] as const;
    const answers = await Promise.all(
      held.flatMap((lease) => [
        store.advance(lease, { progress, onCrash: "resume" }),
        store.settle(lease, complete),
        store.advance(lease, { progress: [], onCrash: "retry" }),
      ]),
    );
    for (let index = 0; index < answers.length; index += 3) {
      expect(answers.slice(index, index + 3)).toMatchObject(["held", { kind: "settled" }, "lost"]);
    }
    expect((await store.read(held[0] as Lease)).record).toMatchObject({ state: "completed", progress });
  });

  it.each([
    ["text that no database takes", { key: "zero \0 byte" }],
    ["a rule of the table", { key: "poison" }],
  ])("a poisoned reservation fails alone: %s", async (_, poison) => {
    await pool.query("ALTER TABLE latchkey_records ADD CONSTRAINT no_poison CHECK (key <> 'poison')");
    onTestFinished(
      async () => void (await pool.query("ALTER TABLE latchkey_records DROP CONSTRAINT no_poison")),
    );
    const store = postgresStore(pool);
    const wanted = requests(20);
    wanted.splice(7, 0, request(poison));
    const answers = await Promise.allSettled(wanted.map((each) => store.reserve(each)));
    expect(answers[7]).toMatchObject({ status: "rejected", reason: expect.any(StoreError) });
    answers.splice(7, 1);
    expect(answers.every((each) => each.status === "fulfilled" && each.value.kind === "execute")).toBe(true);
  });

  it("a poisoned outcome fails alone", async () => {
    const store = postgresStore(pool);
    const held = await leases(store, requests(20));
    const answers = await Promise.allSettled(
      held.map((lease, index) =>
        store.settle(
          lease,
          index === 7 ? { ...complete, response: { ...response, status: 99_999 } } : complete,
        ),
      ),
    );
    expect(answers[7]).toMatchObject({ status: "rejected", reason: expect.any(StoreError) });
    answers.splice(7, 1);
    expect(answers.every((each) => each.status === "fulfilled" && each.value.kind === "settled")).toBe(true);
  });

  it("a stale owner in a batch is told that it lost, and the others settle", async () => {
    const store = postgresStore(pool);
    const held = await leases(store, requests(20));
    const stale = held.map((lease, index) =>
      index % 5 === 0 ? { ...lease, owner: "somebody else" } : lease,
    );
    const answers = await Promise.all(stale.map((lease) => store.settle(lease, complete)));
    expect(answers.map(({ kind }) => kind)).toEqual(
      stale.map((_, index) => (index % 5 === 0 ? "lost" : "settled")),
    );
    expect(await store.renew([held[0] as Lease, held[1] as Lease, held[5] as Lease], 60_000)).toEqual([
      "held",
      "lost",
      "held",
    ]);
  });
});

describe("a record that changes while a batch waits for it", () => {
  /** Changes the records of these leases in a transaction that ends only when `meanwhile` waits for it. */
  async function whileChanging<T>(held: readonly Lease[], meanwhile: () => Promise<T>): Promise<T> {
    const client = await pool.connect();
    await client.query("BEGIN");
    for (const { scope, key } of held) {
      await client.query("UPDATE latchkey_records SET watched = true WHERE scope = $1 AND key = $2", [
        scope,
        key,
      ]);
    }
    const answer = meanwhile();
    await eventually(async () => {
      const [row] = await database.query<{ waiting: number }>(
        "SELECT count(*)::int AS waiting FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
      );
      return (row?.waiting ?? 0) > 0;
    });
    await client.query("COMMIT");
    client.release();
    return answer;
  }

  it("does not cost its owner the lease", async () => {
    const store = postgresStore(pool);
    const held = await leases(store, requests(6));
    const changed = held.slice(0, 3);
    expect(await whileChanging(changed, () => store.renew(held, 60_000))).toEqual(held.map(() => "held"));
    const step = { progress: noProgress, onCrash: "retry" } as const;
    expect(
      await whileChanging(changed, () => Promise.all(held.map((lease) => store.advance(lease, step)))),
    ).toEqual(held.map(() => "held"));
    const settled = await whileChanging(changed, () =>
      Promise.all(held.map((lease) => store.settle(lease, complete))),
    );
    expect(settled.map(({ kind }) => kind)).toEqual(held.map(() => "settled"));
  });
});

describe("what is large", () => {
  it("is replayed by statements of its own, so that nobody waits for all of it", async () => {
    const store = postgresStore(pool);
    const large = { ...complete, response: { ...response, body: Buffer.alloc(20_000, 7) } } as const;
    const wanted = requests(12);
    const held = await leases(store, wanted);
    await Promise.all(held.map((lease, index) => store.settle(lease, index < 3 ? large : complete)));
    const texts: string[] = [];
    const spying = postgresStore(spied(pool, (text) => void texts.push(text)));
    const answers = await Promise.all(wanted.map((each) => spying.reserve(again(each))));
    expect(
      answers.map(
        (answer) =>
          answer.kind === "replay" && answer.response.kind === "full" && answer.response.body.length,
      ),
    ).toEqual(wanted.map((_, index) => (index < 3 ? 20_000 : 4)));
    expect(texts.filter((text) => !text.includes("_batch"))).toHaveLength(3);
  });

  it("does not travel with much of its kind", async () => {
    const store = postgresStore(pool);
    const held = await leases(store, requests(20));
    const texts: string[] = [];
    const spying = postgresStore(spied(pool, (text) => void texts.push(text)));
    const progress = [{ kind: "atomic", name: "done", result: JSON.stringify("x".repeat(250_000)) }] as const;
    await Promise.all(held.map((lease) => spying.advance(lease, { progress, onCrash: "resume" })));
    expect(texts.length).toBeGreaterThan(4);
  });
});

describe("a database in trouble", () => {
  /** Nobody can write while this is held. */
  async function locked<T>(work: (release: () => Promise<void>) => Promise<T>): Promise<T> {
    const client = await pool.connect();
    await client.query("BEGIN; LOCK TABLE latchkey_records IN SHARE MODE");
    let isHeld = true;
    const release = async () => {
      if (isHeld) await client.query("ROLLBACK");
      isHeld = false;
    };
    try {
      return await work(release);
    } finally {
      await release();
      client.release();
    }
  }
  const waitingBackends = async () =>
    (
      await database.query<{ pid: number }>(
        "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
      )
    ).map(({ pid }) => pid);

  it("a lost connection rejects every call that it carried, and what waited goes on elsewhere", async () => {
    const own = database.pool({ max: 4 });
    const store = postgresStore(own);
    const { carried, waiting } = await locked(async (release) => {
      const first = requests(40).map((each) => store.reserve(each));
      const outcomes = Promise.allSettled(first);
      await eventually(async () => (await waitingBackends()).length === 2);
      const later = Promise.allSettled(requests(40).map((each) => store.reserve(each)));
      for (const pid of await waitingBackends())
        await database.query("SELECT pg_terminate_backend($1)", [pid]);
      const lost = await outcomes;
      await release();
      return { carried: lost, waiting: await later };
    });
    expect(carried.map((each) => each.status === "rejected" && each.reason instanceof StoreError)).toEqual(
      carried.map(() => true),
    );
    expect(waiting.every((each) => each.status === "fulfilled" && each.value.kind === "execute")).toBe(true);
  });

  it("a record that somebody has locked holds up only its own batch", async () => {
    const store = postgresStore(pool);
    const [first, second] = requests(2);
    if (!first || !second) throw new Error("two were asked for");
    const held = await leases(store, [first, second]);
    const client = await pool.connect();
    await client.query("BEGIN");
    for (const { scope, key } of held) {
      await client.query("SELECT FROM latchkey_records WHERE scope = $1 AND key = $2 FOR UPDATE", [
        scope,
        key,
      ]);
    }
    const stuck = held.map((lease) => store.settle(lease, complete));
    await eventually(async () => (await waitingBackends()).length > 0);
    await eventually(async () => {
      const answer = await Promise.race([
        store.reserve(request()),
        new Promise<undefined>((resolve) => setTimeout(resolve, 100, undefined)),
      ]);
      return answer?.kind === "execute";
    });
    await client.query("ROLLBACK");
    client.release();
    expect((await Promise.all(stuck)).map(({ kind }) => kind)).toEqual(["settled", "settled"]);
  });
});

describe("the plan", () => {
  /** A round of every kind of batch. */
  async function batchesOn(store: Store): Promise<void> {
    const wanted = requests(3, { onCrash: "retry" });
    const held = await leases(store, wanted);
    await store.renew(held, 60_000);
    await Promise.all(held.map((lease) => store.advance(lease, { progress: noProgress, onCrash: "retry" })));
    await Promise.all(
      held.map((lease, index) =>
        store.settle(
          lease,
          index === 0
            ? { kind: "release", reason: "r", retentionMs: 60_000 }
            : { ...complete, retentionMs: 60_000 },
        ),
      ),
    );
    for (let round = 0; round < 2; round += 1) {
      await Promise.all(wanted.slice(1).map((each) => store.reserve(again(each))));
    }
  }

  function expectIndexAccess(plans: string): void {
    // Each of them did run, and no way into the table but its primary key was taken, or a place that was found by it.
    for (const name of ["reserve", "renew", "advance", "complete", "give_up"]) {
      expect(plans).toContain(`latchkey_${name}_batch`);
    }
    expect(plans).toContain("latchkey_reserve_known");
    expect(plans).toMatch(/Index Scan using latchkey_records_pkey/);
    expect(plans).toMatch(/Tid Scan on latchkey_records/);
    const others = [...plans.matchAll(/(\w+ )?Scan (using \w+ )?on latchkey_records.*/g)]
      .map(([line]) => line)
      .filter((line) => !/^(Index Scan using latchkey_records_pkey|Tid Scan) on/.test(line));
    expect(others).toEqual([]);
    expect(plans).not.toMatch(/Rows Removed by (Join )?Filter: \d\d/);
  }

  it.each([
    ["an empty table, and in a large one with the plans of the empty", 0],
    // The reaper leaves one behind, and so does a table that was analyzed after its first request.
    ["a table of one record, and in a large one with the plans of that", 1],
  ])("is the same walk through the primary key in %s", async (_, records) => {
    await database.query("TRUNCATE latchkey_records");
    for (let nth = 0; nth < records; nth += 1) await leaseOf(postgresStore(pool), request());
    await database.query("VACUUM ANALYZE latchkey_records");
    const { store, plansOf, end } = await explained(database.url, { aloneMax: 0 });
    const plans = () => plansOf(() => batchesOn(store));
    expectIndexAccess(await plans());
    for (let round = 0; round < 8; round += 1) await plans();
    await database.query(manyRecords);
    expectIndexAccess(await plans());
    await database.query("ANALYZE latchkey_records");
    expectIndexAccess(await plans());
    await end();
  });
});
