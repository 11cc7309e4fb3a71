import assert from "node:assert/strict";
import type { NewMessage, Outbox } from "../../core/outbox.ts";
import type { Lease, PhaseCommit, Store } from "../../core/store.ts";
import type { Business, ContractCase, StoreHarness } from "./harness.ts";
import {
  again,
  claimOne,
  complete,
  created,
  fresh,
  kept,
  lease,
  longMs,
  recordIn,
  release,
  rideCreated,
  shortMs,
  suspend,
  sweep,
} from "./requests.ts";

/** What the cases below need; only a store with transactions has it. */
interface Bench extends StoreHarness {
  readonly transact: NonNullable<Store["transact"]>;
  readonly outbox: Outbox;
  readonly business: Business;
  /** A row that no other case writes. */
  readonly row: string;
  isCommitted(row?: string): Promise<boolean>;
}

/** Business writes, progress and messages commit together, or not at all. */
export const transactCases: readonly ContractCase[] = [
  transactCase("a phase commits its business writes, its progress and its messages", async (bench) => {
    const { store, transact, business, row } = bench;
    const request = fresh({ onCrash: "retry" });
    const held = await lease(store, request);
    const { waiting } = await bench.outbox.counts();
    const answer = await transact(
      held,
      async (tx) => {
        await business.insert(tx, row);
        return { ride: 1 };
      },
      (result) => {
        assert.deepEqual(result, { ride: 1 });
        return phase({ messages: [message(row)] });
      },
    );
    const record = await recordIn(store, request, "in_progress");
    assert.deepEqual(answer, { kind: "committed", result: { ride: 1 }, expiresAt: record.expiresAt });
    assert.deepEqual(record.progress, [rideCreated]);
    assert.equal(record.onCrash, "resume");
    assert.ok(await bench.isCommitted());
    assert.equal((await bench.outbox.counts()).waiting, waiting + 1);
    assert.deepEqual(await store.renew([held], longMs), ["held"]);
    assert.equal((await store.settle(held, complete())).kind, "settled");
  }),
  transactCase("several phases of one operation commit one after the other", async (bench) => {
    const { store, transact, business, row } = bench;
    const held = await lease(store, fresh());
    for (const nth of [1, 2, 3]) {
      const answer = await transact(
        held,
        (tx) => business.insert(tx, `${row}-${nth}`),
        () => phase({}),
      );
      assert.equal(answer.kind, "committed");
    }
    for (const nth of [1, 2, 3]) assert.ok(await bench.isCommitted(`${row}-${nth}`));
  }),
  transactCase("phases of many operations at once do not disturb each other", async (bench) => {
    const { store, transact, business, row } = bench;
    const leases = await Promise.all(Array.from({ length: 20 }, () => lease(store, fresh())));
    const failure = new Error("every third fails");
    const outcomes = await Promise.allSettled(
      leases.map((held, nth) =>
        transact(
          held,
          async (tx) => {
            await business.insert(tx, `${row}-${nth}`);
            if (nth % 3 === 0) throw failure;
            return nth;
          },
          () => phase({}),
        ),
      ),
    );
    for (const [nth, outcome] of outcomes.entries()) {
      const isFailing = nth % 3 === 0;
      assert.equal(outcome.status, isFailing ? "rejected" : "fulfilled", `phase ${nth}`);
      assert.equal(await bench.isCommitted(`${row}-${nth}`), !isFailing, `phase ${nth}`);
    }
  }),
  transactCase("a stale owner's phase is lost with everything that it wrote", async (bench) => {
    const { store, transact, business, row, passTime, outbox } = bench;
    const makeStale: Readonly<Record<string, (request: ReturnType<typeof fresh>) => Promise<Lease>>> = {
      "taken over": async (request) => {
        const stale = await lease(store, request);
        await passTime(shortMs + 10);
        await lease(store, again(request, { leaseMs: longMs }));
        return stale;
      },
      swept: async (request) => {
        const stale = await lease(store, request);
        await passTime(shortMs + 10);
        await sweep(store, request);
        return stale;
      },
      completed: async (request) => {
        const held = await lease(store, request);
        await store.settle(held, complete());
        return held;
      },
      suspended: async (request) => {
        const held = await lease(store, request);
        await store.settle(held, suspend);
        return held;
      },
      "somebody else": async (request) => ({ ...(await lease(store, request)), owner: "somebody else" }),
      "at another fence": async (request) => ({ ...(await lease(store, request)), fence: 2 }),
    };
    for (const [how, make] of Object.entries(makeStale)) {
      const stale = await make(fresh({ leaseMs: shortMs, onCrash: "retry" }));
      const before = (await store.read(stale)).record;
      const { waiting } = await outbox.counts();
      const answer = await transact(
        stale,
        (tx) => business.insert(tx, `${row}-${how}`),
        () => phase({ messages: [message(row)], response: complete() }),
      );
      assert.deepEqual(answer, { kind: "lost" }, how);
      assert.equal(await bench.isCommitted(`${row}-${how}`), false, how);
      assert.deepEqual((await store.read(stale)).record, before, how);
      assert.equal((await outbox.counts()).waiting, waiting, how);
    }
  }),
  transactCase("work that throws is rolled back, and what it threw is thrown on", async (bench) => {
    const { store, transact, business, row } = bench;
    const failure = new RangeError("no seats left");
    const held = await lease(store, fresh());
    const before = await recordIn(store, held, "in_progress");
    const throwing: readonly ((tx: unknown) => unknown)[] = [
      async (tx) => {
        await business.insert(tx, row);
        throw failure;
      },
      () => {
        throw failure;
      },
    ];
    for (const work of throwing) {
      await assert.rejects(
        transact(held, work, () => assert.fail("nothing is committed of work that failed")),
        (error) => error === failure,
      );
    }
    assert.equal(await bench.isCommitted(), false);
    assert.deepEqual(await recordIn(store, held, "in_progress"), before);
    const answer = await transact(
      held,
      (tx) => business.insert(tx, row),
      () => phase({}),
    );
    assert.equal(answer.kind, "committed", "the lease is still good for another try");
    assert.ok(await bench.isCommitted());
  }),
  transactCase(
    "a result that cannot be committed is rolled back, and the reason is thrown on",
    async (bench) => {
      const { store, transact, business, row } = bench;
      const failure = new TypeError("a result must be JSON");
      const held = await lease(store, fresh());
      await assert.rejects(
        transact(
          held,
          (tx) => business.insert(tx, row),
          () => {
            throw failure;
          },
        ),
        (error) => error === failure,
      );
      assert.equal(await bench.isCommitted(), false);
      assert.deepEqual((await recordIn(store, held, "in_progress")).progress, []);
    },
  ),
  transactCase(
    "a response that commits with a phase completes the record, and is replayed",
    async (bench) => {
      const { store, transact, business, row } = bench;
      const request = fresh({ request: kept });
      const held = await lease(store, request);
      const response = complete(created, 3_600_000);
      const answer = await transact(
        held,
        (tx) => business.insert(tx, row),
        () => phase({ response }),
      );
      const record = await recordIn(store, request, "completed");
      assert.ok(answer.kind === "committed");
      assert.equal(answer.expiresAt, record.expiresAt);
      assert.ok(Math.abs(record.expiresAt - record.completedAt - 3_600_000) <= 1);
      assert.deepEqual(record.progress, [rideCreated]);
      assert.ok(await bench.isCommitted());
      const replay = await store.reserve(again(request));
      assert.ok(replay.kind === "replay" && replay.response.status === created.status);
      assert.deepEqual(await store.settle(held, complete()), {
        kind: "settled",
        expiresAt: answer.expiresAt,
      });
      assert.deepEqual(await store.settle(held, release), { kind: "lost" });
      assert.equal(await claimOne(store, request), undefined);
    },
  ),
  transactCase("what a phase says about a crash holds from its commit on", async (bench) => {
    const { store, transact, passTime } = bench;
    const request = fresh({ leaseMs: shortMs, onCrash: "reconcile" });
    const held = await lease(store, request);
    await transact(
      held,
      () => undefined,
      () => phase({}),
    );
    await passTime(shortMs + 10);
    const reservation = await store.reserve(again(request));
    assert.ok(reservation.kind === "execute" && reservation.after === "crash");
    assert.deepEqual(reservation.progress, [rideCreated]);
  }),
  transactCase("an owner past its lease that nobody took over may still commit a phase", async (bench) => {
    const { store, transact, business, row, passTime } = bench;
    const held = await lease(store, fresh({ leaseMs: shortMs }));
    await passTime(shortMs + 10);
    const answer = await transact(
      held,
      (tx) => business.insert(tx, row),
      () => phase({}),
    );
    assert.equal(answer.kind, "committed");
    assert.ok(await bench.isCommitted());
  }),
];

let sequence = 0;

function transactCase(name: string, run: (bench: Bench) => Promise<void>): ContractCase {
  return {
    name,
    needs: "transactions",
    async run(harness) {
      const { store, business } = harness;
      const { transact, outbox } = store;
      if (transact === undefined || outbox === undefined) assert.fail("the store has no transactions");
      if (business === undefined) {
        assert.fail("a store with transactions is tested with a business table: give the harness `business`");
      }
      sequence += 1;
      const row = `row-${process.pid}-${sequence}`;
      await run({
        ...harness,
        transact: transact.bind(store) as Bench["transact"],
        outbox,
        business,
        row,
        isCommitted: async (id = row) => (await business.ids()).includes(id),
      });
    },
  };
}

function phase(overrides: Partial<PhaseCommit>): PhaseCommit {
  return { progress: [rideCreated], onCrash: "resume", messages: [], ...overrides };
}

function message(key: string): NewMessage {
  return {
    topic: "transact",
    payload: "{}",
    partition: null,
    key,
    correlationId: key,
    scope: "transact",
    traceparent: null,
    delayMs: 0,
  };
}
