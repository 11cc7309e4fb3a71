import type pg from "pg";
import { beforeAll, describe, expect, it } from "vitest";
import type { ReserveRequest, Store } from "../../src/core/store.ts";
import {
  again,
  complete,
  expectingNew as expecting,
  functionsIn,
  leaseOf,
  request,
  useDatabase,
} from "./postgres-support.ts";

const database = useDatabase();
let pool: pg.Pool;

beforeAll(() => {
  pool = database.pool({ max: 20 });
});

const expectingNew = () => expecting(pool);

const requests = (count: number): ReserveRequest[] => Array.from({ length: count }, () => request());

const leases = (store: Store, wanted: readonly ReserveRequest[]) =>
  Promise.all(wanted.map((each) => leaseOf(store, each)));

describe("batches of new keys", () => {
  it("are inserted without looking, and one that is known after all is answered as ever", async () => {
    const { store, texts } = await expectingNew();
    const [done, running, ...fresh] = requests(20);
    if (!done || !running) throw new Error("two were asked for");
    await store.settle(await leaseOf(store, done), complete);
    await leaseOf(store, running);
    texts.length = 0;
    const other = again(done, { fingerprint: "v1:other" });
    const answers = await Promise.all(
      [done, running, other, ...fresh].map((each) =>
        store.reserve(again(each, { fingerprint: each.fingerprint })),
      ),
    );
    expect(functionsIn(texts)).toContain("latchkey_reserve_alike");
    expect(answers.map(({ kind }) => kind)).toEqual([
      "replay",
      "inFlight",
      "mismatch",
      ...fresh.map(() => "execute"),
    ]);
    expect(answers.slice(3)).toMatchObject(fresh.map(() => ({ after: "absent", lease: { fence: 1 } })));
    for (const answer of answers.slice(3)) {
      if (answer.kind !== "execute") throw new Error("it was reserved");
      expect(await store.settle(answer.lease, complete)).toMatchObject({ kind: "settled" });
    }
    texts.length = 0;
    await leases(store, requests(10));
    expect(functionsIn(texts)).not.toContain("latchkey_reserve_alike");
  });

  it("have one winner for each key if two processes insert the same ones at once, and no deadlock", async () => {
    const both = [await expectingNew(), await expectingNew()];
    for (let round = 0; round < 40; round += 1) {
      const wanted = requests(32);
      const answers = await Promise.all(
        both.map(({ store }, index) =>
          Promise.all(
            (index === 0 ? wanted : [...wanted].reverse()).map((each) => store.reserve(again(each))),
          ),
        ),
      );
      const kinds = answers.flat().map(({ kind }) => kind);
      expect(kinds.filter((kind) => kind === "execute")).toHaveLength(32);
      expect(kinds.filter((kind) => kind === "inFlight")).toHaveLength(32);
      // Both believe in new keys again before the next collision.
      await Promise.all(
        both.map(async ({ store }) => {
          for (let calm = 0; calm < 8; calm += 1) await leases(store, requests(6));
        }),
      );
    }
    for (const { texts } of both) expect(functionsIn(texts)).toContain("latchkey_reserve_alike");
  });

  it("of several routes are inserted without looking as well, each as its own route says", async () => {
    const { store, texts } = await expectingNew();
    const wanted = Array.from({ length: 12 }, (_, index) =>
      request({ route: `route-${index % 3}`, retentionMs: 60_000 * (1 + (index % 3)) }),
    );
    const granted = await leases(store, wanted);
    expect(functionsIn(texts)).toEqual(["latchkey_reserve_fresh"]);
    for (const { key, route, retentionMs } of wanted) {
      const { record } = await store.read({ scope: "tenant", key });
      expect(record?.route).toBe(route);
      expect((record?.expiresAt ?? 0) - (record?.createdAt ?? 0)).toBe(retentionMs);
    }
    const settled = await Promise.all(granted.map((lease) => store.settle(lease, complete)));
    expect(settled).toMatchObject(granted.map(() => ({ kind: "settled" })));
  });
});
