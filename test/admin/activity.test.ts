import { describe, expect, it } from "vitest";
import {
  type ActivitySeries,
  type ActivityView,
  Administration,
  activitySeries,
  reportActivity,
} from "../../src/admin/admin.ts";
import { noteBytesMax } from "../../src/core/notes.ts";
import { ConfigError, createLatchkey, type Latchkey, type LatchkeyEvent } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import { sweeper } from "../../src/workers/workers.ts";
import { onVirtualTime } from "./admin-client.ts";

const hour = { windowMs: 3_600_000, stepMs: 10_000 };
const day = { windowMs: 86_400_000, stepMs: 60_000 };
const week = { windowMs: 604_800_000, stepMs: 600_000 };

const execute = (latchkey: Latchkey, key: string, input: unknown = 1) =>
  latchkey.run({ tenant: "acme", key, input }, () => "done").catch(() => "refused");

const total = ({ series }: ActivityView, name: ActivitySeries) => series[name].reduce((sum, n) => sum + n, 0);
const shown = (view: ActivityView) =>
  Object.fromEntries(activitySeries.map((name) => [name, total(view, name)]).filter(([, sum]) => sum !== 0));

describe("activity", () => {
  it("of two processes adds up, at every scale, and stays when they have gone", async () => {
    const { latchkey: one, another, clock } = onVirtualTime();
    const other = another();
    const reporting = [reportActivity(one, { role: "api" }), reportActivity(other, { role: "gateway" })];
    await clock.advance(10_000);
    await execute(one, "a");
    await execute(other, "b");
    await execute(other, "a");
    await execute(other, "a", 2);
    await clock.advance(10_000);
    await execute(one, "c");
    await clock.advance(300_000);
    const administration = new Administration(another());
    const told = { executed: 3, replayed: 1, misused: 1, completed: 3 };
    for (const query of [hour, day, week]) expect(shown(await administration.activity(query))).toEqual(told);
    const view = await administration.activity(hour);
    const steps = view.series.executed.flatMap((n, step) =>
      n === 0 ? [] : [[n, view.from + step * view.stepMs]],
    );
    expect(steps.map(([n]) => n)).toEqual([2, 1]);
    expect((steps[1]?.[1] ?? 0) - (steps[0]?.[1] ?? 0)).toBe(10_000);
    for (const { stop } of reporting) await stop();
    for (const query of [hour, day, week]) expect(shown(await administration.activity(query))).toEqual(told);
  });

  it("is forgotten where it is out of sight, and stays where it is not", async () => {
    const { latchkey, another, clock } = onVirtualTime();
    const reporting = reportActivity(latchkey, { role: "api" });
    await clock.advance(5_000);
    await execute(latchkey, "a");
    await clock.advance(5_000);
    await reporting.stop();
    const administration = new Administration(another());
    const seen = async () =>
      Promise.all(
        [hour, day, week].map(async (query) => total(await administration.activity(query), "executed")),
      );
    expect(await seen()).toEqual([1, 1, 1]);
    await clock.advance(2 * 3_600_000);
    expect(await seen()).toEqual([0, 1, 1]);
    await clock.advance(24 * 3_600_000);
    expect(await seen()).toEqual([0, 0, 1]);
    await clock.advance(7 * 24 * 3_600_000);
    expect(await seen()).toEqual([0, 0, 0]);
  });

  it("goes on over the edge of a note", async () => {
    const { latchkey, another, clock } = onVirtualTime();
    reportActivity(latchkey, { role: "api" });
    for (let n = 0; n < 90; n += 1) {
      await execute(latchkey, `key-${n}`);
      await clock.advance(30_000);
    }
    const administration = new Administration(another());
    const view = await administration.activity(hour);
    expect(shown(view)).toEqual({ executed: 90, completed: 90 });
    expect(view.series.executed.filter((n) => n > 0)).toHaveLength(90);
    // The coarser ones are written less often.
    await clock.advance(60_000);
    expect(shown(await administration.activity(day))).toEqual({ executed: 90, completed: 90 });
  });

  it("counts every outcome of a request as what it is", async () => {
    const { latchkey, another, clock } = onVirtualTime();
    reportActivity(latchkey, { role: "api" });
    await clock.advance(5_000);
    const { events } = latchkey.engine;
    const about = { scope: "acme", key: "a" };
    const reserved = { type: "reserved", ...about, joined: false, cached: false, discovered: false } as const;
    const said: readonly (readonly [LatchkeyEvent, ActivitySeries | undefined])[] = [
      ...(["created", "claimed", "failed_retry", "takeover", "expired_retry", "unprotected"] as const).map(
        (outcome) => [{ ...reserved, outcome }, "executed"] as const,
      ),
      [{ ...reserved, outcome: "replay" }, "replayed"],
      [{ ...reserved, outcome: "in_progress" }, "inProgress"],
      [{ ...reserved, outcome: "key_misuse" }, "misused"],
      [{ ...reserved, outcome: "unknown" }, "unknown"],
      [{ ...reserved, outcome: "store_down" }, "storeDown"],
      [{ ...reserved, outcome: "limited" }, "limited"],
      [{ ...reserved, outcome: "accepted" }, undefined],
      [{ ...reserved, outcome: "absent" }, undefined],
      [{ type: "refused", code: "key-missing" }, "refused"],
      [{ type: "limited", tenantScope: "acme", limit: "lookUps" }, "limited"],
      [{ type: "limited", tenantScope: "acme", limit: "newKeys" }, undefined],
      [{ type: "settled", ...about, as: "completed", attempt: 1, ms: 1 }, "completed"],
      [{ type: "settled", ...about, as: "failed_retryable", attempt: 1, ms: 1 }, "failedRetryable"],
      [{ type: "settled", ...about, as: "unknown", attempt: 1, ms: 1 }, "suspended"],
    ];
    const expected: Partial<Record<ActivitySeries, number>> = {};
    for (const [event, series] of said) {
      events.emit(event);
      if (series !== undefined) expected[series] = (expected[series] ?? 0) + 1;
    }
    await clock.advance(10_000);
    expect(shown(await new Administration(another()).activity(hour))).toEqual(expected);
  });

  it("disturbs no request when notes cannot be written, and is told when they can be again", async () => {
    const { latchkey, another, clock } = onVirtualTime();
    reportActivity(latchkey, { role: "api" });
    await clock.advance(5_000);
    const { notes } = latchkey.store;
    const { write } = notes;
    Object.assign(notes, { write: () => Promise.reject(new Error("the disk is full")) });
    for (let n = 0; n < 3; n += 1) {
      expect(await execute(latchkey, `key-${n}`)).toBe("done");
      await clock.advance(20_000);
    }
    const administration = new Administration(another());
    expect(shown(await administration.activity(hour))).toEqual({});
    Object.assign(notes, { write });
    await clock.advance(10_000);
    expect(shown(await administration.activity(hour))).toEqual({ executed: 3, completed: 3 });
  });

  it("is counted once, though the answer to a write was lost", async () => {
    const { latchkey, another, clock } = onVirtualTime();
    reportActivity(latchkey, { role: "api" });
    await clock.advance(5_000);
    const { notes } = latchkey.store;
    const { write } = notes;
    await execute(latchkey, "a");
    let lost = 0;
    Object.assign(notes, {
      async write(...args: Parameters<typeof write>) {
        await write.apply(notes, args);
        lost += 1;
        throw new Error("the connection was lost");
      },
    });
    await clock.advance(12_000);
    expect(lost).toBeGreaterThan(0);
    Object.assign(notes, { write });
    await execute(latchkey, "b");
    await clock.advance(120_000);
    const administration = new Administration(another());
    for (const query of [hour, day]) {
      expect(shown(await administration.activity(query))).toEqual({ executed: 2, completed: 2 });
    }
  });

  it("is told once, though it was asked for twice", async () => {
    const { latchkey, another, clock } = onVirtualTime();
    const one = reportActivity(latchkey);
    const other = reportActivity(latchkey, { role: "gateway" });
    expect(other.id).toBe(one.id);
    await clock.advance(5_000);
    await execute(latchkey, "a");
    await one.stop();
    await one.stop();
    await clock.advance(10_000);
    const administration = new Administration(another());
    expect(shown(await administration.activity(hour))).toEqual({ executed: 1, completed: 1 });
    expect((await administration.stats()).processes).toMatchObject([{ role: "gateway" }]);
    await other.stop();
    expect((await administration.stats()).processes).toEqual([]);
  });

  it("ends with its Latchkey, if nobody ended it before", async () => {
    const { latchkey, clock } = onVirtualTime();
    const { notes } = latchkey.store;
    const { write } = notes;
    let writes = 0;
    Object.assign(notes, {
      write(...args: Parameters<typeof write>) {
        writes += 1;
        return write.apply(notes, args);
      },
    });
    const { stop } = reportActivity(latchkey, { role: "api" });
    await clock.advance(10_000);
    await latchkey.close();
    const before = writes;
    expect(before).toBeGreaterThan(0);
    await clock.advance(60_000);
    await stop();
    expect(writes).toBe(before);
    expect(latchkey.engine.events.areHeard).toBe(false);
  });

  it("fits into its notes, however much happens", async () => {
    const clock = manualClock();
    const store = memoryStore({ clock: clock.now });
    const { write } = store.notes;
    let longest = 0;
    Object.assign(store.notes, {
      write(...args: Parameters<typeof write>) {
        for (const { note } of args[0]) longest = Math.max(longest, Buffer.byteLength(note?.value ?? ""));
        return write.apply(store.notes, args);
      },
    });
    const latchkey = createLatchkey({ store, tenant: "single", runtime: clock });
    reportActivity(latchkey, { role: "api", intervalMs: 60_000 });
    await clock.advance(1_000);
    const { events } = latchkey.engine;
    const scope = "t".repeat(512);
    for (let n = 0; n < 61; n += 1) {
      for (let key = 0; key < 100; key += 1) {
        const reserved = { type: "reserved", scope, joined: true, cached: false, discovered: false } as const;
        events.emit({ ...reserved, key: `${n}-${key}`.padEnd(255, "k"), outcome: "replay" });
      }
      for (let worker = 0; worker < 10; worker += 1) {
        events.emit({ type: "worker_error", worker: `${n}-${worker}`, error: new Error("e".repeat(10_000)) });
      }
      await clock.advance(10_000);
    }
    expect(longest).toBeGreaterThan(5_000);
    expect(longest).toBeLessThan(noteBytesMax / 2);
  });

  it("says what it cannot show", async () => {
    const administration = new Administration(onVirtualTime().latchkey);
    for (const query of [
      { windowMs: 3_600_000, stepMs: 1_000 },
      { windowMs: 86_400_000, stepMs: 10_000 },
      { windowMs: 8 * 86_400_000, stepMs: 600_000 },
      { windowMs: 3_600_001, stepMs: 10_000 },
      { windowMs: 0, stepMs: 10_000 },
      { windowMs: Number.NaN, stepMs: 10_000 },
    ]) {
      await expect(administration.activity(query)).rejects.toThrow(ConfigError);
    }
    expect(
      (await administration.activity({ windowMs: 86_400_000, stepMs: 3_600_000 })).series.executed,
    ).toHaveLength(24);
  });

  it("needs a role and an interval that make sense", () => {
    const { latchkey } = onVirtualTime();
    for (const options of [{ role: "" }, { role: "a\nb" }, { intervalMs: 0 }, { intervalMs: Number.NaN }]) {
      expect(() => reportActivity(latchkey, options)).toThrow(ConfigError);
    }
  });
});

describe("a process", () => {
  it("is shown while it lives, as not alive when it has died, and not at all when it has ended", async () => {
    const { latchkey, another, clock } = onVirtualTime();
    const dying = another();
    const ending = another();
    reportActivity(latchkey, { role: "api" });
    reportActivity(dying, { role: "dying" });
    const { stop } = reportActivity(ending, { role: "ending" });
    await clock.advance(10_000);
    const administration = new Administration(another());
    const processes = async () =>
      (await administration.stats()).processes.map(({ role, isAlive }) => [role, isAlive]);
    expect(await processes()).toEqual([
      ["api", true],
      ["dying", true],
      ["ending", true],
    ]);
    const [view] = (await administration.stats()).processes;
    expect(view).toMatchObject({ pid: process.pid, workers: [] });
    expect((view?.seenAt ?? 0) - (view?.startedAt ?? 0)).toBeLessThanOrEqual(10_000);
    await stop();
    // As after kill -9: it says nothing any more.
    Object.assign(dying.engine, { ask: () => new Promise(() => {}) });
    await clock.advance(10_000);
    expect(await processes()).toEqual([
      ["api", true],
      ["dying", true],
    ]);
    await clock.advance(20_000);
    expect(await processes()).toEqual([
      ["api", true],
      ["dying", false],
    ]);
    await clock.advance(2 * 3_600_000);
    expect(await processes()).toEqual([["api", true]]);
  });

  it("tells how its workers are", async () => {
    const { latchkey, another, clock } = onVirtualTime();
    reportActivity(latchkey, { role: "worker" });
    await clock.advance(5_000);
    const { scope, key, ...rest } = { scope: "acme", key: "a", fingerprint: "v1:x", owner: "o" };
    await latchkey.store.reserve({
      scope,
      key,
      ...rest,
      leaseMs: 0,
      retentionMs: 60_000,
      onCrash: "reconcile",
      reconcileAfterMs: 0,
      mode: "execute",
      route: undefined,
      request: undefined,
    });
    const worker = sweeper(latchkey);
    await worker.runOnce();
    await worker.runOnce();
    const roundAt = clock.now();
    latchkey.engine.events.emit({
      type: "worker_error",
      worker: "relay",
      error: new Error("refused\nsecret"),
    });
    await clock.advance(10_000);
    const [view] = (await new Administration(another()).stats()).processes;
    expect(view?.workers).toEqual([
      {
        name: "sweeper",
        rounds: 2,
        lastRoundAt: roundAt,
        counts: { unknown: 1, retryable: 0, unclaimed: 0 },
        errors: 0,
        lastError: null,
        lastErrorAt: null,
      },
      {
        name: "relay",
        rounds: 0,
        lastRoundAt: null,
        counts: {},
        errors: 1,
        lastError: "refused",
        lastErrorAt: roundAt,
      },
    ]);
  });
});

describe("duplicates of a key", () => {
  it("are counted by what they got, in all processes together", async () => {
    const { latchkey: one, another, clock } = onVirtualTime();
    const other = another();
    reportActivity(one, { role: "api" });
    reportActivity(other, { role: "api" });
    await clock.advance(5_000);
    await execute(one, "a");
    await execute(one, "a");
    await execute(other, "a");
    await execute(other, "a", "another request");
    await execute(one, "b");
    await clock.advance(10_000);
    const administration = new Administration(another());
    expect((await administration.record({ tenant: "acme", key: "a" }))?.duplicates).toEqual({
      replayed: 2,
      inProgress: 0,
      misused: 1,
      unknown: 0,
      lastAt: expect.any(Number),
    });
    expect((await administration.record({ tenant: "acme", key: "b" }))?.duplicates).toBeNull();
  });

  it("are remembered of the latest 200 keys, and the notes name none of them", async () => {
    const { latchkey, another, clock } = onVirtualTime();
    const { notes } = latchkey.store;
    const { write } = notes;
    const written: string[] = [];
    Object.assign(notes, {
      write(...args: Parameters<typeof write>) {
        written.push(JSON.stringify(args));
        return write.apply(notes, args);
      },
    });
    reportActivity(latchkey, { role: "api" });
    await clock.advance(5_000);
    for (let n = 0; n <= 200; n += 1) {
      await execute(latchkey, `secret-${n}`);
      await execute(latchkey, `secret-${n}`);
    }
    await clock.advance(10_000);
    const administration = new Administration(another());
    const duplicates = async (n: number) =>
      (await administration.record({ tenant: "acme", key: `secret-${n}` }))?.duplicates;
    expect(await duplicates(0)).toBeNull();
    expect(await duplicates(1)).toMatchObject({ replayed: 1 });
    expect(await duplicates(200)).toMatchObject({ replayed: 1 });
    expect(written.join()).not.toContain("secret-");
    expect(written.join()).not.toContain("acme");
  });
});
