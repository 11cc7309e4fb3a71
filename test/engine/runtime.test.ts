import { describe, expect, it } from "vitest";
import { Deadlines } from "../../src/engine/deadlines.ts";
import { sleeper, systemRuntime } from "../../src/engine/runtime.ts";
import { manualClock } from "../../src/testing/index.ts";

describe("sleeping", () => {
  it("ends when the time is up", async () => {
    const clock = manualClock();
    const { sleep } = sleeper(clock);
    let awake = false;
    void sleep(100).then(() => {
      awake = true;
    });
    await clock.advance(99);
    expect(awake).toBe(false);
    await clock.advance(1);
    expect(awake).toBe(true);
  });

  it("ends at once when woken", async () => {
    const { sleep, wake } = sleeper(manualClock());
    const sleeping = sleep(100);
    wake();
    await sleeping;
  });

  it("does not begin when the wake-up came before it, and only that once", async () => {
    const clock = manualClock();
    const { sleep, wake } = sleeper(clock);
    wake();
    await sleep(100);
    let awake = false;
    void sleep(100).then(() => {
      awake = true;
    });
    await clock.advance(99);
    expect(awake).toBe(false);
  });
});

describe("deadlines", () => {
  it("give the value, the error, or nothing when the time is up", async () => {
    const clock = manualClock();
    const deadlines = new Deadlines(clock, 100);
    expect(await deadlines.within(Promise.resolve(1))).toBe(1);
    await expect(deadlines.within(Promise.reject(new Error("no")))).rejects.toThrow("no");
    const late = deadlines.within(new Promise(() => {}));
    await clock.advance(100);
    expect(await late).toBeUndefined();
  });

  it("are missed each at its own time, in order, and only if they were not met", async () => {
    const clock = manualClock();
    const deadlines = new Deadlines(clock, 100);
    const missed: string[] = [];
    const set = (name: string) => deadlines.set(() => missed.push(`${name} at ${clock.now() - start}`));
    const start = clock.now();
    const [first, , third] = [set("first"), set("second"), set("third")];
    await clock.advance(60);
    set("fourth");
    const fifth = set("fifth");
    for (const met of [first, third, third, fifth]) deadlines.meet(met);
    await clock.advance(1000);
    expect(missed).toEqual(["second at 100", "fourth at 160"]);
    set("sixth");
    await clock.advance(100);
    expect(missed.at(-1)).toBe("sixth at 1160");
  });

  it("without an end are never missed", async () => {
    const clock = manualClock();
    const missed: number[] = [];
    new Deadlines(clock, Number.POSITIVE_INFINITY).set(() => missed.push(1));
    await clock.advance(1e9);
    expect(missed).toEqual([]);
  });

  it("of more than 24 days are not missed at once", async () => {
    let fired = false;
    const cancel = systemRuntime.setTimer(() => {
      fired = true;
    }, 2 ** 40);
    await new Promise((resolve) => setTimeout(resolve, 20));
    cancel();
    expect(fired).toBe(false);
  });
});
