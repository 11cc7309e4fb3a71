import { describe, expect, it } from "vitest";
import { PhaseError, StoreError } from "../../src/core/errors.ts";
import type { Message, NewMessage, Outbox } from "../../src/core/outbox.ts";
import type { Lease, PhaseCommit, ReserveRequest, Store, TransactAnswer } from "../../src/core/store.ts";
import { createLatchkey } from "../../src/index.ts";
import {
  type DynamoDbStoreOptions,
  DynamoWriteRefusedError,
  type DynamoWrites,
  dynamodbStore,
} from "../../src/stores/dynamodb/store.ts";
import { again, request } from "../support/reserve-request.ts";
import { business, ridesTable, useDynamoDb } from "./dynamodb-support.ts";

const place = useDynamoDb();

function open(options: Partial<DynamoDbStoreOptions> = {}): Store<DynamoWrites> {
  return dynamodbStore(place.client, { table: place.table, ...options });
}

async function lease(store: Store<DynamoWrites>, asked: ReserveRequest = request()): Promise<Lease> {
  const reservation = await store.reserve(asked);
  if (reservation.kind !== "execute") expect.fail(`expected to execute, got ${reservation.kind}`);
  return reservation.lease;
}

function transact<T>(
  store: Store<DynamoWrites>,
  held: Lease,
  work: (tx: DynamoWrites) => T | Promise<T>,
  commit: Partial<PhaseCommit> = {},
): Promise<TransactAnswer<T>> {
  if (store.transact === undefined) expect.fail("the store has no transactions");
  return store.transact(held, work, () => ({ progress: [], onCrash: "retry", messages: [], ...commit }));
}

function outboxOf({ outbox }: Store<DynamoWrites>): Outbox {
  return outbox ?? expect.fail("the store has no outbox");
}

const rides = () => ridesTable(place.table);
const committed = async () => business(place.client, place.table).ids();
const ride = (id: string) => ({ TableName: rides(), Item: { id: { S: id } } });
const putAll = (tx: DynamoWrites, ids: readonly string[]) => {
  for (const id of ids) tx.put(ride(id));
};
const newRide = (id: string) => ({ ...ride(id), ConditionExpression: "attribute_not_exists(id)" });

let sequence = 0;
const name = () => `ride-${++sequence}`;

function message(overrides: Partial<NewMessage> = {}): NewMessage {
  const key = `message-${++sequence}`;
  const common = {
    topic: "rides",
    payload: "{}",
    partition: null,
    correlationId: key,
    scope: "rides",
    traceparent: null,
    delayMs: 0,
  };
  return { ...common, key, ...overrides };
}

describe("an atomic phase", () => {
  it("writes, changes, deletes and checks items of any table together", async () => {
    const store = open();
    const [kept, gone, fresh] = [name(), name(), name()];
    await transact(store, await lease(store), (tx) => {
      tx.put(ride(kept));
      tx.put(ride(gone));
    });
    const answer = await transact(store, await lease(store), (tx) => {
      tx.put(newRide(fresh));
      tx.delete({ TableName: rides(), Key: { id: { S: gone } } });
      tx.check({ TableName: rides(), Key: { id: { S: kept } }, ConditionExpression: "attribute_exists(id)" });
      return "done";
    });
    expect(answer).toMatchObject({ kind: "committed", result: "done" });
    const ids = await committed();
    expect([kept, gone, fresh].map((id) => ids.includes(id))).toEqual([true, false, true]);
  });

  it("whose own condition does not hold fails with which item it was, writes nothing, and keeps its lease", async () => {
    const store = open();
    const [taken, other] = [name(), name()];
    await transact(store, await lease(store), (tx) => tx.put(ride(taken)));
    const asked = request();
    const held = await lease(store, asked);
    const outbox = outboxOf(store);
    const { waiting } = await outbox.counts();
    const refused = await transact(
      store,
      held,
      (tx) => {
        tx.put(ride(other));
        tx.put({ ...newRide(taken), ReturnValuesOnConditionCheckFailure: "ALL_OLD" });
      },
      { messages: [message()] },
    ).catch((error: unknown) => error);
    if (!(refused instanceof DynamoWriteRefusedError)) expect.fail(String(refused));
    expect(refused).not.toBeInstanceOf(StoreError);
    const { index, reason, write, item, message: said } = refused;
    expect({ index, reason }).toEqual({ index: 1, reason: "ConditionalCheckFailed" });
    expect(write?.Put?.Item?.id?.S).toBe(taken);
    expect(item?.id?.S).toBe(taken);
    expect(said).toContain(rides());
    expect(await committed()).not.toContain(other);
    expect((await outbox.counts()).waiting).toBe(waiting);
    expect((await transact(store, held, (tx) => tx.put(ride(other)))).kind).toBe("committed");
  });

  it("that DynamoDB does not understand fails as the phase's own fault, and keeps its lease", async () => {
    const store = open();
    const held = await lease(store);
    const id = name();
    const wrong: readonly ((tx: DynamoWrites) => void)[] = [
      (tx) => tx.put({ TableName: "nowhere", Item: { id: { S: id } } }),
      (tx) => tx.put({ ...ride(id), ConditionExpression: "no such language" }),
      (tx) => {
        tx.put(ride(id));
        tx.put(ride(id));
      },
    ];
    for (const work of wrong) {
      await expect(transact(store, held, work)).rejects.toThrow(DynamoWriteRefusedError);
    }
    expect(await committed()).not.toContain(id);
    expect(await store.renew([held], 60_000)).toEqual(["held"]);
  });

  it("with more than a hundred items, or four megabytes, is refused with a sentence before anything is sent", async () => {
    const store = open();
    const held = await lease(store);
    const ids = Array.from({ length: 100 }, name);
    const tooMany = transact(store, held, (tx) => putAll(tx, ids));
    await expect(tooMany).rejects.toThrow(PhaseError);
    await expect(tooMany).rejects.toThrow(/several phases/);
    const large = { S: "x".repeat(380_000) };
    const tooMuch = transact(store, held, (tx) => {
      for (const id of ids.slice(0, 12)) tx.put({ TableName: rides(), Item: { id: { S: id }, large } });
    });
    await expect(tooMuch).rejects.toThrow(/4 MB/);
    expect((await committed()).filter((id) => ids.includes(id))).toEqual([]);
    expect((await transact(store, held, (tx) => putAll(tx, ids.slice(1)))).kind).toBe("committed");
  });

  it("whose result does not fit into its record is refused as its own fault, and keeps its lease", async () => {
    const store = open();
    const held = await lease(store);
    const id = name();
    const progress = [
      { kind: "atomic", name: "large", result: JSON.stringify("x".repeat(410_000)) },
    ] as const;
    await expect(transact(store, held, (tx) => tx.put(ride(id)), { progress })).rejects.toThrow(PhaseError);
    expect(await committed()).not.toContain(id);
    expect(await store.renew([held], 60_000)).toEqual(["held"]);
  });

  it("cannot hand over anything after it is over", async () => {
    const store = open();
    const held = await lease(store);
    let kept: DynamoWrites | undefined;
    await transact(store, held, (tx) => {
      kept = tx;
    });
    expect(() => kept?.put(ride(name()))).toThrow(PhaseError);
  });

  it("completes its record with a body that is split", async () => {
    const store = open({ partBytes: 10 });
    const asked = request();
    const held = await lease(store, asked);
    const body = Uint8Array.from({ length: 95 }, (_, index) => index);
    const response = { kind: "full", status: 201, headers: [], body } as const;
    await transact(store, held, () => undefined, {
      response: { kind: "complete", response, retentionMs: 60_000 },
    });
    const replay = await store.reserve(again(asked));
    if (replay.kind !== "replay" || replay.response.kind !== "full") expect.fail(replay.kind);
    expect(new Uint8Array(replay.response.body)).toEqual(body);
  });

  it("waits for its own heartbeat, and its heartbeat for it", async () => {
    const store = open();
    const held = await lease(store);
    const phases = Array.from({ length: 5 }, () => transact(store, held, (tx) => tx.put(ride(name()))));
    const beats = Array.from({ length: 20 }, () => store.renew([held], 60_000));
    expect((await Promise.all(phases)).map(({ kind }) => kind)).toEqual(Array(5).fill("committed"));
    expect((await Promise.all(beats)).flat()).toEqual(Array(20).fill("held"));
  });
});

describe("messages", () => {
  it("of one partition that many phases enqueue at once are all delivered, each phase's own in order", async () => {
    // At one moment, so that nothing but the counter tells them apart.
    const now = Date.now();
    const store = open({ clock: () => now });
    const outbox = outboxOf(store);
    const partition = name();
    const phases = Array.from({ length: 12 }, (_, phase) => phase);
    await Promise.all(
      phases.map(async (phase) => {
        const messages = [0, 1, 2].map((nth) => message({ partition, payload: `${phase}.${nth}` }));
        await transact(store, await lease(store), () => undefined, { messages });
      }),
    );
    const seen = await drain(outbox, ["relay"], partition);
    expect(seen).toHaveLength(36);
    expect(new Set(seen.map(({ id }) => id)).size).toBe(36);
    // What committed together has numbers that follow each other.
    const order = seen.map(({ payload }) => payload.split(".")[0]);
    expect(order.filter((phase, index) => phase !== order[index - 1])).toHaveLength(12);
    for (const phase of phases) {
      const own = seen.filter(({ payload }) => payload.startsWith(`${phase}.`)).map(({ payload }) => payload);
      expect(own).toEqual([`${phase}.0`, `${phase}.1`, `${phase}.2`]);
    }
  });

  it("of a phase that has more than fit are delivered once and in order, by whichever of three relays", async () => {
    const store = open();
    const outbox = outboxOf(store);
    const topic = name();
    const partitions = Array.from({ length: 40 }, (_, nth) => `${topic}/${nth}`);
    const rows = Array.from({ length: 15 }, name);
    const many = [0, 1, 2].flatMap((nth) =>
      partitions.map((partition) => message({ topic, partition, payload: String(nth) })),
    );
    const held = await lease(store);
    // The first of each partition comes in a parcel, the last in an item of its own, and must wait for its turn.
    await transact(store, held, (tx) => putAll(tx, rows), { messages: many });
    const [partition = null] = partitions;
    await transact(store, held, () => undefined, {
      messages: [message({ topic, partition, payload: "3" })],
    });
    expect(await committed()).toEqual(expect.arrayContaining(rows));
    const seen = await drain(outbox, ["one", "two", "three"], topic);
    expect(seen).toHaveLength(121);
    for (const each of partitions) {
      const own = seen.filter((found) => found.partition === each).map(({ payload }) => payload);
      expect(own, each).toEqual(each === partition ? ["0", "1", "2", "3"] : ["0", "1", "2"]);
    }
  });

  it("that are larger than an item are refused, as the phase's own fault, and nothing of it is written", async () => {
    const store = open();
    const held = await lease(store);
    const id = name();
    const payload = JSON.stringify("x".repeat(420_000));
    const refused = transact(store, held, (tx) => tx.put(ride(id)), { messages: [message({ payload })] });
    await expect(refused).rejects.toThrow(PhaseError);
    expect(await committed()).not.toContain(id);
  });

  it("that are large die together, and are listed", async () => {
    const store = open();
    const outbox = outboxOf(store);
    const held = await lease(store);
    const topic = name();
    const payload = JSON.stringify("x".repeat(300_000));
    const partition = name();
    for (let nth = 0; nth < 14; nth += 1) {
      await transact(store, held, () => undefined, { messages: [message({ topic, partition, payload })] });
    }
    const batch = await outbox.claim({ owner: "relay", limit: 100, leaseMs: 60_000 });
    expect(batch.filter((found) => found.topic === topic)).toHaveLength(14);
    // Told twice, which counts once.
    const died = batch.map(({ id }) => ({ kind: "dead", id, error: "refused" }) as const);
    await outbox.settle("relay", [...died, ...died]);
    const dead = (await outbox.deadLetters({ limit: 100 })).filter((found) => found.topic === topic);
    expect(dead.map(({ attempts }) => attempts)).toEqual(Array(14).fill(1));
    expect(await outbox.claim({ owner: "relay", limit: 100, leaseMs: 60_000 })).toEqual([]);
  });

  it("of which something is told twice in one settlement are settled once, by the first word", async () => {
    const store = open();
    const outbox = outboxOf(store);
    const topic = name();
    await transact(store, await lease(store), () => undefined, { messages: [message({ topic })] });
    const batch = await outbox.claim({ owner: "relay", limit: 100, leaseMs: 60_000 });
    const { dead } = await outbox.counts();
    await outbox.settle("relay", [
      ...batch.map(({ id }) => ({ kind: "delivered", id }) as const),
      ...batch.map(({ id }) => ({ kind: "dead", id, error: "refused" }) as const),
    ]);
    expect(batch.filter((found) => found.topic === topic)).toHaveLength(1);
    expect(await outbox.counts()).toMatchObject({ waiting: 0, dead });
  });

  it("are not revived, settled or listed under an id that no message of this store has", async () => {
    const outbox = outboxOf(open());
    const odd = ["", "1", "0000000000000001/record#=1:a", "0000000000000001/claims", "x/partition#=p"];
    expect(await outbox.requeue(odd, "ada")).toBe(0);
    await outbox.settle(
      "relay",
      odd.map((id) => ({ kind: "delivered", id })),
    );
  });
});

/** Everything that these relays are given, side by side, whose topic or partition has this name. */
async function drain(outbox: Outbox, owners: readonly string[], wanted: string): Promise<Message[]> {
  const seen: Message[] = [];
  for (;;) {
    const batches = await Promise.all(
      owners.map(async (owner) => {
        const batch = await outbox.claim({ owner, limit: 25, leaseMs: 60_000 });
        seen.push(...batch.filter(({ topic, partition }) => topic === wanted || partition === wanted));
        await outbox.settle(
          owner,
          batch.map(({ id }) => ({ kind: "delivered", id })),
        );
        return batch;
      }),
    );
    if (batches.flat().length === 0) return seen;
  }
}

it("an atomic phase can only hand over writes: anything else does not compile", async () => {
  const latchkey = createLatchkey({ store: open(), tenant: "single" });
  const id = name();
  await latchkey.run({ tenant: "acme", key: name(), input: {} }, (op) =>
    op.atomic("ride_created", (tx) => tx.put(newRide(id))),
  );
  expect(await committed()).toContain(id);

  const wrong = (tx: DynamoWrites) => {
    // @ts-expect-error: there is nothing to read with.
    tx.get({ TableName: rides(), Key: { id: { S: id } } });
    // @ts-expect-error: nor to ask with.
    tx.query({ TableName: rides() });
    // @ts-expect-error: nor to send anything with.
    tx.send({ TableName: rides() });
    // @ts-expect-error: a write names its table.
    tx.put({ Item: { id: { S: id } } });
    // @ts-expect-error: a value says its type.
    tx.put({ TableName: rides(), Item: { id } });
    // @ts-expect-error: what is checked says under which condition.
    tx.check({ TableName: rides(), Key: { id: { S: id } } });
    // @ts-expect-error: there is nothing to wait for, so that nobody takes it for written.
    tx.put(newRide(id)).then(() => {});
  };
  expect(wrong).toBeTypeOf("function");
});
