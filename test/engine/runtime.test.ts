import { describe, expect, it } from "vitest";
import { sleeper, systemRuntime, within } from "../../src/engine/runtime.ts";
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

describe("a time limit", () => {
  it("gives the value, the error, or nothing when the time is up", async () => {
    const clock = manualClock();
    expect(await within(clock, 100, Promise.resolve(1))).toBe(1);
    await expect(within(clock, 100, Promise.reject(new Error("no")))).rejects.toThrow("no");
    const late = within(clock, 100, new Promise(() => {}));
    await clock.advance(100);
    expect(await late).toBeUndefined();
  });

  it("of more than 24 days does not fire at once", async () => {
    let fired = false;
    const cancel = systemRuntime.setTimer(() => {
      fired = true;
    }, 2 ** 40);
    await new Promise((resolve) => setTimeout(resolve, 20));
    cancel();
    expect(fired).toBe(false);
  });
});
