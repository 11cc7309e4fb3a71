import { describe, expect, it } from "vitest";
import { systemRuntime } from "../../src/engine/runtime.ts";
import {
  createLatchkey,
  currentOperation,
  FlowChangedError,
  LeaseLostError,
  type Operation,
  OperationRefusedError,
  PhaseError,
  StoreError,
} from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { faultyStore } from "../../src/testing/index.ts";
import { businesses } from "../support/business.ts";
import { Crash, crash, id, request, retried, useRides } from "./rides.ts";

describe.each(businesses)("the phases of an operation on %s", (_name, open) => {
  const rides = useRides(open);
  const { run, state, book, start } = rides;

  it("are done once, in order, and their results are what they returned", async () => {
    const seen: (string | undefined)[] = [];
    const result = await run(async (op) => {
      seen.push(op.recoveryPoint);
      const first = await book(op, "first");
      seen.push(op.recoveryPoint);
      const charge = await op.effect("charge", ({ idempotencyKey }) => ({ charge: idempotencyKey }));
      seen.push(op.recoveryPoint);
      return { ...first, ...charge, attempt: op.attempt };
    });
    expect(seen).toEqual([undefined, "first", "charge"]);
    expect(result).toEqual({ ride: "first", charge: expect.stringMatching(/^lk_[\w-]{43}$/), attempt: 1 });
    expect(await run(() => crash())).toEqual(result);
    expect(await rides.business.booked()).toEqual(["first"]);
  });

  it("that are done are skipped by the next attempt, which gets their results and goes on", async () => {
    const keys: string[] = [];
    const flow = (fail: boolean) => async (op: Operation) => {
      const ride = await book(op, "ride");
      const charge = await op.effect("charge", ({ idempotencyKey }) => {
        keys.push(idempotencyKey);
        if (fail) crash();
        return { id: "ch_1" };
      });
      await book(op, "receipt");
      return { ride, charge, attempt: op.attempt };
    };
    await expect(run(flow(true))).rejects.toThrow(Crash);
    expect(await state()).toMatchObject({ state: "failed_retryable" });
    expect(await run(flow(false))).toEqual({ ride: { ride: "ride" }, charge: { id: "ch_1" }, attempt: 2 });
    expect(await rides.business.booked()).toEqual(["ride", "receipt"]);
    expect(keys).toHaveLength(2);
    expect(new Set(keys).size).toBe(1);
    expect(rides.events).toContainEqual({
      type: "phase",
      ...id,
      attempt: 2,
      kind: "atomic",
      name: "ride",
      outcome: "skipped",
    });
  });

  it("give back what can be stored, from the first attempt on", async () => {
    const at = new Date(0);
    const result = await run((op) => op.atomic("dated", () => ({ at, nothing: undefined })));
    expect(result).toEqual({ at: at.toISOString() });
    const text: string = result.at;
    expect(typeof text).toBe("string");
  });

  it("that throw leave no business write behind, and nothing has begun", async () => {
    const failing = run((op) =>
      op.atomic("ride", async (tx) => {
        await rides.business.book(tx, "ride");
        crash();
      }),
    );
    await expect(failing).rejects.toThrow(Crash);
    expect(await rides.business.booked()).toEqual([]);
    expect(await state()).toMatchObject({ state: "failed_retryable", progress: [] });
  });

  it("can be tried again by the handler that caught their failure", async () => {
    const result = await run(async (op) => {
      await op.atomic("ride", () => crash()).catch(() => {});
      await op.effect("charge", () => crash()).catch(() => {});
      await op.effect("charge", () => "second try");
      return book(op, "ride");
    });
    expect(result).toEqual({ ride: "ride" });
  });

  it("of a stale owner cannot commit: its business writes roll back", async () => {
    const other = start(rides.business.another());
    let wake = () => {};
    let began = () => {};
    const slept = new Promise<void>((resolve) => {
      wake = resolve;
    });
    const begun = new Promise<void>((resolve) => {
      began = resolve;
    });
    const stale = rides.latchkey.run(request, async (op) => {
      // What a stopped process does not do: renew its lease.
      rides.latchkey.engine.close();
      began();
      await slept;
      return book(op, "stale");
    });
    await begun;
    const taken = await retried(() => other.run(request, (op) => book(op, "fresh")));
    expect(taken).toEqual({ ride: "fresh" });
    wake();
    await expect(stale).rejects.toThrow();
    expect(await rides.business.booked()).toEqual(["fresh"]);
    expect(rides.events).toContainEqual(expect.objectContaining({ type: "lease_lost", attempt: 1 }));
    await other.close();
  });

  it("refuse to be nested, to run side by side, and to share a name", async () => {
    const refused: unknown[] = [];
    const note = (error: unknown) => void refused.push(error);
    await run(async (op) => {
      await op.atomic("outer", async () => {
        await op.effect("inner", () => 1).catch(note);
        await op.atomic("inner", () => 1).catch(note);
      });
      await op.effect("call", async () => {
        await op.effect("second", () => 1).catch(note);
      });
      await op.atomic("outer", () => 1).catch(note);
      await op.atomic("no spaces please", () => 1).catch(note);
      await op.enqueue({}, "topic", 1).catch(note);
      await op.atomic("messages", async (tx) => {
        await op.enqueue(tx, "", 1).catch(note);
        await op.enqueue(tx, "topic", 1, { partition: "nul\0" }).catch(note);
        await op.enqueue(tx, "topic", 1, { correlationId: "x".repeat(256) }).catch(note);
        await op.enqueue(tx, "topic", 1, { delayMs: -1 }).catch(note);
        await op.enqueue(tx, "topic", 1n).catch(note);
      });
      await op.atomic("big", () => "x".repeat(300_000)).catch(note);
      await op.atomic("function", () => () => 1).catch(note);
      return "done";
    });
    expect(refused).toHaveLength(13);
    for (const error of refused) expect(error).toBeInstanceOf(PhaseError);
    expect(String(refused[0])).toContain('begun inside or beside the phase "outer"');
    expect(String(refused[3])).toContain("used twice");
  });

  it.each<[string, (op: Operation) => Promise<unknown>]>([
    ["another name", (op) => op.atomic("renamed", () => 1)],
    ["another kind", (op) => op.effect("first", () => 1)],
    ["another order", (op) => op.atomic("second", () => 1)],
    ["fewer phases", async () => "nothing to do"],
  ])("that differ from the recorded ones (%s) make the outcome unknown", async (_how, changed) => {
    const original = async (op: Operation) => {
      await op.atomic("first", () => 1);
      await op.atomic("second", () => 2);
      crash();
    };
    await expect(run(original)).rejects.toThrow(Crash);
    const resumed = run(changed);
    await expect(resumed).rejects.toThrow(/recorded|not known/);
    await resumed.catch((error) => {
      expect(error instanceof FlowChangedError || error instanceof OperationRefusedError).toBe(true);
    });
    expect(await state()).toMatchObject({ state: "unknown" });
    await expect(run(original)).rejects.toMatchObject({ code: "outcome-unknown" });
  });

  it("a handler that catches the divergence does not get away with it", async () => {
    await expect(
      run(async (op) => {
        await op.atomic("first", () => 1);
        crash();
      }),
    ).rejects.toThrow(Crash);
    await expect(run((op) => op.atomic("renamed", () => 1).catch(() => "fine"))).rejects.toMatchObject({
      code: "outcome-unknown",
    });
    expect(await state()).toMatchObject({ state: "unknown" });
  });

  it("an answer can commit with the last business write, and nothing can follow it", async () => {
    let after: unknown;
    const result = await run(async (op) => {
      await op.atomic("finished", async (tx) => {
        await rides.business.book(tx, "ride");
        await op.respond(tx, { status: 200, body: { ride: "committed" } });
        await op.respond(tx, { status: 200, body: {} }).catch((error) => {
          after = error;
        });
      });
      await op.atomic("more", () => 1);
      return { ride: "never told" };
    });
    expect(result).toEqual({ ride: "committed" });
    expect(after).toBeInstanceOf(PhaseError);
    expect(await state()).toMatchObject({ state: "completed" });
    expect(await run(() => crash())).toEqual({ ride: "committed" });
  });

  it("an answer that was committed is not there if its transaction failed", async () => {
    await expect(
      run((op) =>
        op.atomic("finished", async (tx) => {
          await op.respond(tx, { status: 200, body: 1 });
          crash();
        }),
      ),
    ).rejects.toThrow(Crash);
    expect(await state()).toMatchObject({ state: "failed_retryable" });
  });

  it("an answer that could not be sent is refused before it is committed", async () => {
    await expect(
      run((op) =>
        op.atomic("finished", (tx) => op.respond(tx, { status: 201, headers: { location: "/rides/Łódź" } })),
      ),
    ).rejects.toThrow(/header "location", which cannot be sent/);
    expect(await state()).toMatchObject({ state: "failed_retryable" });
  });

  it("nothing can follow an answer, not even beside it", async () => {
    let late: Promise<unknown> | undefined;
    await run(async (op) => {
      late = new Promise((resolve) => setTimeout(resolve, 50)).then(() => op.effect("late", () => "called"));
      return "answered";
    });
    await expect(late).rejects.toThrow(/nothing can follow an answer/);
  });

  it("a phase whose commit nobody confirmed is neither nothing nor done", async () => {
    const lossy = faultyStore({
      store: rides.business.store,
      runtime: systemRuntime,
      choose: (verb) => ({ kind: verb === "transact" ? "failAfter" : "none" }),
    });
    const doubtful = createLatchkey({ store: lossy, tenant: "single", onCrash: "resume" });
    // Thrown on, it is gone on with; swallowed, nobody may be told that it was done.
    await expect(doubtful.run(request, (op) => book(op, "ride"))).rejects.toThrow(StoreError);
    expect(await state()).toMatchObject({ state: "failed_retryable", progress: [{ name: "ride" }] });
    expect(await run((op) => book(op, "ride"))).toEqual({ ride: "ride" });
    expect(await rides.business.booked()).toEqual(["ride"]);
    const swallowed = { ...request, key: "key-2" };
    await expect(
      doubtful.run(swallowed, (op) => book(op, "other").catch(() => "booked")),
    ).rejects.toMatchObject({ code: "outcome-unknown" });
    await doubtful.close({ drainMs: 0 });
  });

  it("keys for others are another operation's when the key is used anew", async () => {
    const keyOf = () => run((op) => op.effect("charge", ({ idempotencyKey }) => idempotencyKey));
    const brief = createLatchkey({ store: rides.business.store, tenant: "single", retentionMs: 1 });
    const first = await brief.run(request, (op) =>
      op.effect("charge", ({ idempotencyKey }) => idempotencyKey),
    );
    let second = first;
    while (second === first) second = await keyOf();
    expect(second).toMatch(/^lk_/);
    await brief.close();
  });

  it("messages commit with their phase, and never without it", async () => {
    const outbox = rides.business.store.outbox;
    if (outbox === undefined) throw new Error("no outbox");
    const keys = await run(async (op) => {
      await op
        .atomic("lost", async (tx) => {
          await op.enqueue(tx, "receipt.send", { lost: true });
          crash();
        })
        .catch(() => {});
      return op.atomic("kept", async (tx) => [
        await op.enqueue(tx, "receipt.send", { ride: 1 }, { partition: "rider-1" }),
        await op.enqueue(tx, "receipt.send", { ride: 2 }, { correlationId: "trace-2" }),
      ]);
    });
    const messages = await outbox.claim({ owner: "test", limit: 10, leaseMs: 1000 });
    expect(messages.map(({ payload }) => payload).sort()).toEqual(['{"ride":1}', '{"ride":2}']);
    const byPayload = [...messages].sort((a, b) => a.payload.localeCompare(b.payload));
    expect(byPayload.map(({ key }) => key)).toEqual(keys);
    expect(byPayload[0]).toMatchObject({
      topic: "receipt.send",
      partition: "rider-1",
      correlationId: "key-1",
    });
    expect(byPayload[1]).toMatchObject({ partition: null, correlationId: "trace-2" });
  });

  it("an operation is found by currentOperation anywhere below its work", async () => {
    await run(async (op) => {
      await Promise.resolve();
      expect(currentOperation()).toBe(op);
      expect(op).toMatchObject({ ...id, attempt: 1 });
    });
  });

  it("stop when the lease is lost, and the signal says so", async () => {
    const outcome = run(async (op) => {
      await book(op, "ride");
      await rides.business.store.settle(
        { ...id, fence: 1, owner: ownerOf(await state()) },
        { kind: "release", reason: "somebody else did this", retentionMs: 1000 },
      );
      await expect(book(op, "more")).rejects.toThrow(LeaseLostError);
      expect(op.signal.aborted).toBe(true);
      await expect(book(op, "even more")).rejects.toThrow(LeaseLostError);
      return "never";
    });
    await expect(outcome).rejects.toMatchObject({ code: "lease-lost" });
    expect(await rides.business.booked()).toEqual(["ride"]);
  });
});

function ownerOf(record: unknown): string {
  return (record as { owner: string }).owner;
}

describe("a store without transactions", () => {
  it("refuses to resume when it is put together, and says what to use", () => {
    expect(() => createLatchkey({ store: memoryStore(), tenant: "single", onCrash: "resume" })).toThrow(
      /use sqliteStore, postgresStore, mysqlStore or dynamodbStore/,
    );
  });

  it("refuses an atomic phase before anything has happened, and has effects", async () => {
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
    await expect(latchkey.run(request, (op) => op.atomic("ride", () => 1))).rejects.toThrow(
      /op.atomic needs a store whose transactions can hold your business writes: use sqliteStore, postgresStore, mysqlStore or dynamodbStore/,
    );
    expect(await latchkey.run(request, (op) => op.effect("charge", () => "ch_1"))).toBe("ch_1");
    await latchkey.close();
  });
});
