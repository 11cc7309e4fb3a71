import { describe, expect, it } from "vitest";
import { StoreBusyError, StoreError } from "../../src/core/errors.ts";
import { Gathering } from "../../src/stores/gathering.ts";
import { database, id, ignored, turn } from "./gathering-support.ts";

class Refused extends Error {}
let now = 0;
const gathering = (aloneMax = 1) =>
  new Gathering({ isRefusal: (error) => error instanceof Refused, now: () => now, aloneMax });
describe("what travels together", () => {
  it("a lone call leaves in the same turn of the event loop, alone", async () => {
    const { asked, verb } = database();
    const answer = gathering().ask(verb, id("a"), id("a"));
    await turn();
    expect(asked).toMatchObject([{ keys: ["a"] }]);
    asked[0]?.answer();
    expect(await answer).toBe("alone a");
  });

  it("what comes while all flights are in the air makes the next batches, sorted by record", async () => {
    const { asked, verb } = database();
    const all = gathering();
    const first = ["a", "b"].map((key) => all.ask(verb, id(key), id(key)));
    await turn();
    expect(asked.map(({ keys }) => keys)).toEqual([["a"], ["b"]]);
    const rest = ["z", "d", "y", "c"].map((key) => all.ask(verb, id(key), id(key)));
    await turn();
    expect(asked).toHaveLength(2);
    asked[0]?.answer();
    await turn();
    expect(asked[2]?.keys).toEqual(["c", "d", "y", "z"]);
    asked[1]?.answer();
    asked[2]?.answer();
    expect(await Promise.all([...first, ...rest])).toEqual([
      "alone a",
      "alone b",
      "together z",
      "together d",
      "together y",
      "together c",
    ]);
  });

  it("a call that fails while it is being asked is told so, also where it need not wait for the one before it", async () => {
    const { verb } = database({ isUnordered: true });
    const throwing = {
      ...verb,
      alone(): Promise<string> {
        throw new StoreError("no connection");
      },
    };
    const all = gathering();
    const answers = [1, 2].map(() => all.ask(throwing, id("a"), id("a")));
    const told = await Promise.allSettled(answers);
    expect(told.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  });

  it("where no batch waits for another, calls stay in the order in which they came", async () => {
    const { asked, verb } = database();
    const all = new Gathering({ isRefusal: () => false, isSorted: false });
    const answers = ["z", "d", "y", "c"].map((key) => all.ask(verb, id(key), id(key)));
    await turn();
    expect(asked.map(({ keys }) => keys)).toEqual([
      ["z", "d"],
      ["y", "c"],
    ]);
    for (const { answer } of asked) answer();
    expect(await Promise.all(answers)).toEqual(["z", "d", "y", "c"].map((key) => `together ${key}`));
  });

  it("while there are only a few, each leaves at once", async () => {
    const { asked, verb } = database();
    const all = gathering();
    for (const key of ["a", "b", "c", "d"]) {
      all.ask(verb, id(key), id(key)).catch(ignored);
      await turn();
    }
    expect(asked.map(({ keys }) => keys)).toEqual([["a"], ["b"], ["c"], ["d"]]);
    for (const key of ["e", "f"]) {
      all.ask(verb, id(key), id(key)).catch(ignored);
      await turn();
    }
    expect(asked).toHaveLength(4);
    for (const { answer } of asked.slice(0, 4)) answer();
    await turn();
    expect(asked.slice(4).flatMap(({ keys }) => keys)).toEqual(["e", "f"]);
  });

  it("a crowd is shared among the flights that are free", async () => {
    const { asked, verb } = database();
    const all = gathering();
    for (let index = 0; index < 100; index += 1)
      all.ask(verb, id(`k${index}`), id(`k${index}`)).catch(ignored);
    await turn();
    expect(asked.map(({ keys }) => keys.length)).toEqual([50, 50]);
  });

  it.each([
    [100, [50, 50]],
    [191, [96, 95]],
    [192, [64, 64, 64]],
    [1000, [334, 333, 333]],
  ])("where three flights are allowed, %i calls leave in batches of %j", async (count, batches) => {
    const { asked, verb } = database();
    const all = new Gathering({ isRefusal: () => false, flightsMax: 3 });
    for (let index = 0; index < count; index += 1)
      all.ask(verb, id(`k${index}`), id(`k${index}`)).catch(ignored);
    await turn();
    expect(asked.map(({ keys }) => keys.length)).toEqual(batches);
  });

  it("elsewhere a few calls go at once, however often they come", async () => {
    const { asked, verb } = database();
    const all = gathering();
    for (let index = 0; index < 80; index += 1) {
      all.ask(verb, id(`k${index}`), id(`k${index}`)).catch(ignored);
      await turn();
      now += 0.5;
      if (index % 2 === 1) for (const { answer } of asked.splice(0)) answer();
      await turn();
    }
    for (const key of ["a", "b", "c"]) {
      all.ask(verb, id(key), id(key)).catch(ignored);
      await turn();
    }
    expect(asked.map(({ keys }) => keys)).toEqual([["a"], ["b"], ["c"]]);
  });

  it("what is large travels in batches of its own", async () => {
    const { asked, verb } = database();
    const all = gathering();
    for (const key of ["a", "b", "c", "d"])
      all.ask(verb, id(key), { ...id(key), bytes: 700_000 }).catch(ignored);
    await turn();
    expect(asked.map(({ keys }) => keys)).toEqual([["a"], ["b"]]);
  });

  it("calls of two kinds never share a batch", async () => {
    const one = database();
    const other = database();
    const all = gathering(0);
    for (const key of ["a", "b"]) all.ask(one.verb, id(key), id(key)).catch(ignored);
    for (const key of ["c", "d"]) all.ask(other.verb, id(key), id(key)).catch(ignored);
    await turn();
    expect([one.asked[0]?.keys, other.asked[0]?.keys]).toEqual([
      ["a", "b"],
      ["c", "d"],
    ]);
  });
});

describe("one record", () => {
  it("is never twice in a batch, and its calls go in order, each after the answer to the one before", async () => {
    const { asked, verb } = database();
    const all = gathering(0);
    const answers = [
      all.ask(verb, id("a"), id("a")),
      all.ask(verb, id("a"), id("a")),
      all.ask(verb, id("b"), id("b")),
    ];
    await turn();
    expect(asked.map(({ keys }) => keys)).toEqual([["a"], ["b"]]);
    asked[1]?.answer();
    await turn();
    expect(asked).toHaveLength(2);
    asked[0]?.answer();
    await turn();
    expect(asked[2]?.keys).toEqual(["a"]);
    asked[2]?.answer();
    await Promise.all(answers);
  });

  it("is asked about at once where the order does not matter", async () => {
    const { asked, verb } = database({ isUnordered: true });
    const all = gathering();
    for (let index = 0; index < 5; index += 1) all.ask(verb, id("a"), id("a")).catch(ignored);
    await turn();
    expect(asked.map(({ keys }) => keys)).toEqual([["a"], ["a"], ["a"], ["a"], ["a"]]);
  });

  it("is forgotten when its last call is answered", async () => {
    const { asked, verb } = database();
    const all = gathering();
    for (let round = 0; round < 3; round += 1) {
      const answer = all.ask(verb, id("a"), id("a"));
      await turn();
      asked[round]?.answer();
      expect(await answer).toBe("alone a");
    }
  });
});

describe("what goes wrong", () => {
  it("a call that a batch cannot answer is asked alone, and the others have their answers already", async () => {
    const { asked, verb } = database();
    const all = gathering(0);
    const answers = ["even", "odd"].map((key) => all.ask(verb, id(key), id(key)));
    // One flight takes both: the other is busy.
    await turn();
    for (const flight of asked.splice(0)) flight.answer();
    expect(await answers[0]).toBe("together even");
    await turn();
    expect(asked).toMatchObject([{ keys: ["odd"] }]);
    asked[0]?.answer();
    expect(await answers[1]).toBe("alone odd");
  });

  it("a refused batch is asked one by one, and only the poisoned call fails", async () => {
    const { asked, verb } = database();
    const all = gathering();
    all.ask(verb, id("busy1"), id("busy1")).catch(ignored);
    all.ask(verb, id("busy2"), id("busy2")).catch(ignored);
    await turn();
    const answers = ["a", "poison", "z"].map((key) => all.ask(verb, id(key), id(key)));
    asked[0]?.answer();
    await turn();
    expect(asked[2]?.keys).toEqual(["a", "poison", "z"]);
    asked[2]?.fail(new Refused());
    await turn();
    for (const flight of asked.slice(3)) {
      if (flight.keys[0] === "poison") flight.fail(new Refused("it is poison"));
      else flight.answer();
    }
    expect(await Promise.allSettled(answers)).toMatchObject([
      { value: "alone a" },
      { reason: new Refused("it is poison") },
      { value: "alone z" },
    ]);
  });

  it("a lost batch rejects each of its calls, and is not sent again", async () => {
    const { asked, verb } = database();
    const all = gathering(0);
    const answers = ["a", "b", "c"].map((key) => all.ask(verb, id(key), id(key)));
    await turn();
    const sent = asked.length;
    for (const flight of asked) flight.fail(new Error("the connection is lost"));
    for (const answer of answers) await expect(answer).rejects.toThrow("the connection is lost");
    await turn();
    expect(asked).toHaveLength(sent);
  });

  it("a call that is never answered does not hold up for ever what else is said about its record", async () => {
    const { asked, verb } = database();
    const all = gathering();
    all.ask(verb, id("a"), id("a")).catch(ignored);
    await turn();
    for (let heartbeat = 0; heartbeat < 3; heartbeat += 1) {
      all.ask(verb, id("a"), id("a")).catch(ignored);
      await turn();
      expect(asked).toHaveLength(heartbeat + 1);
      now += 1_001;
      all.ask(verb, id("a"), id("a")).catch(ignored);
      await turn();
      expect(asked).toHaveLength(heartbeat + 2);
    }
  });

  it("calls that are never answered do not use up the room for others", async () => {
    const { asked, verb } = database({ isUrgent: true });
    const all = gathering();
    for (let heartbeat = 0; heartbeat < 100; heartbeat += 1) {
      for (let record = 0; record < 300; record += 1)
        all.ask(verb, id(`k${record}`), id(`k${record}`)).catch(ignored);
      await turn();
      now += 1_001;
    }
    const before = asked.length;
    const fresh = all.ask({ ...verb, isUrgent: false }, id("fresh"), id("fresh"));
    await turn();
    expect(asked.length).toBeGreaterThan(before);
    for (const flight of asked) flight.answer();
    expect(await fresh).toContain("fresh");
  });

  it("what has waited for longer than anybody waits is not sent any more, unless it is urgent", async () => {
    const { asked, verb } = database();
    const urgent = { ...verb, isUrgent: true };
    const all = gathering();
    for (const key of ["busy1", "busy2"]) all.ask(verb, id(key), id(key)).catch(ignored);
    await turn();
    const late = all.ask(verb, id("late"), id("late"));
    const outcome = all.ask(urgent, id("outcome"), id("outcome"));
    now += 4_001;
    all.ask(verb, id("new"), id("new")).catch(ignored);
    await expect(late).rejects.toThrow(StoreBusyError);
    await turn();
    expect(
      asked
        .slice(2)
        .flatMap(({ keys }) => keys)
        .sort(),
    ).toEqual(["new", "outcome"]);
    for (const flight of asked) flight.answer();
    expect(await outcome).toContain("outcome");
  });

  it("a rare kind of call has its turn between crowds of others", async () => {
    const { asked, verb } = database();
    const rare = database();
    const all = gathering();
    let isOver = false;
    const client = async (name: string) => {
      for (let round = 0; !isOver; round += 1) await all.ask(verb, id(`${name} ${round}`), id(name));
    };
    const clients = Array.from({ length: 16 }, (_, index) => client(`client ${index}`));
    await turn();
    all.ask(rare.verb, id("rare"), id("rare")).catch(ignored);
    for (let landing = 0; landing < 6; landing += 1) {
      now += 1;
      asked.shift()?.answer();
      await turn();
    }
    expect(rare.asked).toMatchObject([{ keys: ["rare"] }]);
    isOver = true;
    while (asked.length > 0) {
      for (const flight of asked.splice(0)) flight.answer();
      for (const flight of rare.asked) flight.answer();
      await turn();
    }
    await Promise.all(clients);
  });

  it("flights that take for ever do not keep the rest on the ground", async () => {
    const { asked, verb } = database();
    const all = gathering();
    for (const key of ["a", "b", "c"]) all.ask(verb, id(key), id(key)).catch(ignored);
    await turn();
    await turn();
    const before = asked.length;
    now += 1_001;
    all.ask(verb, id("d"), id("d")).catch(ignored);
    await turn();
    expect(asked.slice(before).flatMap(({ keys }) => keys)).toContain("d");
  });

  it("past the limit a call is refused at once, and there is room again after an answer; what is urgent has twice as much", async () => {
    const { asked, verb } = database();
    const all = gathering();
    const answers = Array.from({ length: 10_000 }, (_, index) =>
      all.ask(verb, id(`k${index}`), id(`k${index}`)),
    );
    await expect(all.ask(verb, id("more"), id("more"))).rejects.toThrow(StoreError);
    all.ask({ ...verb, isUrgent: true }, id("urgent"), id("urgent")).catch(ignored);
    await expect(all.ask(verb, id("more"), id("more"))).rejects.toThrow(/10001 calls are waiting/);
    await turn();
    for (const flight of asked) flight.answer();
    await answers[0];
    all.ask(verb, id("more"), id("more")).catch(ignored);
    await expect(all.ask(verb, id("huge"), { ...id("huge"), bytes: 65 * 1024 * 1024 })).rejects.toThrow(
      StoreError,
    );
  });
});
