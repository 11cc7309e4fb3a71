import { describe, expect, it, vi } from "vitest";
import { Gathering } from "../../src/stores/gathering.ts";
import { database, id, ignored, turn } from "./gathering-support.ts";

let now = 0;

describe("where a small crowd has one flight at a time", () => {
  const crowd = () => {
    const { asked, verb } = database();
    const all = new Gathering({ isRefusal: () => false, now: () => now, quietMax: 2, smallCrowdMax: 16 });
    let count = 0;
    const come = async (calls: number) => {
      for (const end = count + calls; count < end; count += 1)
        all.ask(verb, id(`k${count}`), id(`k${count}`)).catch(ignored);
      await turn();
    };
    return { asked, come, sizes: () => asked.map(({ keys }) => keys.length) };
  };

  it.each([
    [5, [5]],
    [16, [16]],
    [17, [9, 8]],
    [3, [3]],
    [2, [1, 1]],
  ])("%i calls leave in batches of %j", async (count, batches) => {
    const { come, sizes } = crowd();
    await come(count);
    expect(sizes()).toEqual(batches);
  });

  it("who comes later waits for its end, and no longer", async () => {
    const { asked, come, sizes } = crowd();
    await come(8);
    await come(4);
    await come(2);
    expect(sizes()).toEqual([8]);
    asked[0]?.answer();
    await turn();
    expect(sizes()).toEqual([8, 6]);
  });

  it("a second call does not wait for the first, and a third one does", async () => {
    const { asked, come, sizes } = crowd();
    await come(1);
    await come(1);
    await come(1);
    expect(sizes()).toEqual([1, 1]);
    asked[0]?.answer();
    await turn();
    expect(sizes()).toEqual([1, 1, 1]);
  });

  /** So many calls come at once, again and again, and are answered after this time. */
  const comeAndGo = async (
    { asked, come }: Pick<ReturnType<typeof crowd>, "asked" | "come">,
    { calls, everyMs, takesMs }: { calls: number; everyMs: number; takesMs: number },
  ) => {
    for (let left = 120; left > 0; left -= 1) {
      await come(calls);
      now += takesMs;
      for (const { answer } of asked.splice(0)) answer();
      await turn();
      now += everyMs - takesMs;
    }
  };

  it.each([
    ["waits for the first where calls keep coming", { calls: 2, everyMs: 0.5, takesMs: 0.5 }, [1]],
    ["waits where almost one is under way at any time", { calls: 1, everyMs: 0.58, takesMs: 0.5 }, [1]],
    ["does not wait where there are pauses", { calls: 1, everyMs: 0.72, takesMs: 0.5 }, [1, 1]],
    ["does not wait where calls are rare", { calls: 1, everyMs: 2, takesMs: 0.5 }, [1, 1]],
    [
      "does not wait where calls are rare and the database is slow",
      { calls: 1, everyMs: 1_000, takesMs: 9 },
      [1, 1],
    ],
  ])("a second call %s", async (_what, traffic, sizesThen) => {
    const { asked, come, sizes } = crowd();
    await comeAndGo({ asked, come }, traffic);
    await come(1);
    await come(1);
    expect(sizes()).toEqual(sizesThen);
    now += 0.5;
    asked[0]?.answer();
    await turn();
    expect(sizes()).toEqual([1, 1]);
  });

  it("is forgotten after some dozens of calls, in one direction and in the other", async () => {
    const { asked, come, sizes } = crowd();
    for (const isDense of [true, false, true]) {
      await comeAndGo(
        { asked, come },
        { calls: isDense ? 2 : 1, everyMs: isDense ? 0.5 : 3_000, takesMs: 0.5 },
      );
      await come(1);
      await come(1);
      expect(sizes()).toEqual(isDense ? [1] : [1, 1]);
      for (let left = 2; left > 0; left -= 1) {
        for (const { answer } of asked.splice(0)) answer();
        await turn();
      }
    }
  });

  it("who waits for one that is stuck goes without anybody else having to come", async () => {
    const { asked, come, sizes } = crowd();
    await comeAndGo({ asked, come }, { calls: 2, everyMs: 0.5, takesMs: 0.5 });
    await come(1);
    await come(1);
    expect(sizes()).toEqual([1]);
    now += 20;
    await vi.waitFor(() => expect(sizes()).toEqual([1, 1]));
  });

  it("goes on beside one that takes long", async () => {
    const { come, sizes } = crowd();
    await come(8);
    now += 19;
    await come(3);
    expect(sizes()).toEqual([8]);
    now += 1;
    await come(1);
    expect(sizes()).toEqual([8, 4]);
  });

  it("shares its flights as soon as it is a large one", async () => {
    const { come, sizes } = crowd();
    await come(8);
    await come(8);
    expect(sizes()).toEqual([8]);
    await come(1);
    expect(sizes()).toEqual([8, 9]);
  });
});
