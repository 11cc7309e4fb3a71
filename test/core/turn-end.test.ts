import { AsyncLocalStorage } from "node:async_hooks";
import { expect, it } from "vitest";
import { atTurnEnd, turnEnd } from "../../src/core/turn-end.ts";

const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

it("tasks wait for the end of the turn, and are done in the order in which they came", async () => {
  const done: string[] = [];
  atTurnEnd(() => done.push("first"));
  process.nextTick(() => atTurnEnd(() => done.push("second")));
  await Promise.resolve();
  expect(done).toEqual([]);
  await nextTurn();
  expect(done).toEqual(["first", "second"]);
});

it("what tasks lead to is done at the end of the same turn, step by step, each step for all of them", async () => {
  const done: string[] = [];
  for (const name of ["a", "b"]) {
    void turnEnd().then(() => {
      done.push(`settled ${name}`);
      atTurnEnd(() => {
        done.push(`sealed ${name}`);
        void Promise.resolve().then(() => atTurnEnd(() => done.push(`sent ${name}`)));
      });
    });
  }
  atTurnEnd(() => setImmediate(() => done.push("the next turn")));
  await nextTurn();
  await nextTurn();
  await nextTurn();
  expect(done).toEqual([
    "settled a",
    "settled b",
    "sealed a",
    "sealed b",
    "sent a",
    "sent b",
    "the next turn",
  ]);
});

it("after a turn has ended, tasks wait for the end of the next", async () => {
  atTurnEnd(() => {});
  await nextTurn();
  await nextTurn();
  const done: string[] = [];
  setImmediate(() => done.push("this turn"));
  atTurnEnd(() => done.push("its end"));
  process.nextTick(() => done.push("a tick"));
  await nextTurn();
  expect(done).toEqual(["a tick", "this turn", "its end"]);
});

it("a task that throws takes none of the others with it", async () => {
  const done: string[] = [];
  const listeners = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.once("uncaughtException", () => done.push("told"));
  try {
    atTurnEnd(() => {
      throw new Error("it fails");
    });
    atTurnEnd(() => done.push("done"));
    await nextTurn();
    await nextTurn();
  } finally {
    process.removeAllListeners("uncaughtException");
    for (const listener of listeners) process.on("uncaughtException", listener);
  }
  expect(done.sort()).toEqual(["done", "told"]);
});

it("whoever waits for the end of a turn goes on in its own asynchronous context", async () => {
  const context = new AsyncLocalStorage<string>();
  const seen = await Promise.all(
    ["a", "b", "c"].map((name) => context.run(name, () => turnEnd().then(() => context.getStore()))),
  );
  expect(seen).toEqual(["a", "b", "c"]);
});
