import { describe, expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import type { RecordId } from "../../src/core/record.ts";
import { Gathering, type Verb } from "../../src/stores/gathering.ts";

interface Call extends RecordId {
  readonly bytes?: number;
}

/** A database that answers when it is told to, and remembers what it was asked. */
function database({ isUnordered = false } = {}) {
  const asked: { readonly keys: readonly string[]; answer(): void; fail(error: unknown): void }[] = [];
  const hold = <A>(keys: readonly string[], answers: A) =>
    new Promise<A>((resolve, reject) => {
      asked.push({ keys, answer: () => resolve(answers), fail: reject });
    });
  const verb: Verb<Call, string> = {
    alone: ({ key }) => hold([key], `alone ${key}`),
    together: (calls) =>
      hold(
        calls.map(({ key }) => key),
        calls.map(({ key }) => (key.startsWith("odd") ? undefined : `together ${key}`)),
      ),
    bytes: ({ bytes = 1 }) => bytes,
    isUnordered,
  };
  return { asked, verb };
}

class Refused extends Error {}
let now = 0;
const gathering = (aloneMax = 1) =>
  new Gathering({ isRefusal: (error) => error instanceof Refused, now: () => now, aloneMax });
const turn = () => new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
const id = (key: string): Call => ({ scope: "s", key });
const calm = { isUrgent: false };

describe("what travels together", () => {
  it("a lone call leaves in the same turn of the event loop, alone", async () => {
    const { asked, verb } = database();
    const answer = gathering().ask(verb, id("a"), id("a"), calm);
    await turn();
    expect(asked).toMatchObject([{ keys: ["a"] }]);
    asked[0]?.answer();
    expect(await answer).toBe("alone a");
  });

  it("what comes while all flights are in the air makes the next batches, sorted by record", async () => {
    const { asked, verb } = database();
    const all = gathering();
    const first = ["a", "b"].map((key) => all.ask(verb, id(key), id(key), calm));
    await turn();
    expect(asked.map(({ keys }) => keys)).toEqual([["a"], ["b"]]);
    const rest = ["z", "d", "y", "c"].map((key) => all.ask(verb, id(key), id(key), calm));
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

  it("a crowd is shared among the flights that are free", async () => {
    const { asked, verb } = database();
    const all = gathering();
    for (let index = 0; index < 100; index += 1) void all.ask(verb, id(`k${index}`), id(`k${index}`), calm);
    await turn();
    expect(asked.map(({ keys }) => keys.length)).toEqual([50, 50]);
  });

  it("what is large travels in batches of its own", async () => {
    const { asked, verb } = database();
    const all = gathering();
    for (const key of ["a", "b", "c", "d"]) void all.ask(verb, id(key), { ...id(key), bytes: 700_000 }, calm);
    await turn();
    expect(asked.map(({ keys }) => keys)).toEqual([["a"], ["b"]]);
  });

  it("calls of two kinds never share a batch", async () => {
    const one = database();
    const other = database();
    const all = gathering(0);
    for (const key of ["a", "b"]) void all.ask(one.verb, id(key), id(key), calm);
    for (const key of ["c", "d"]) void all.ask(other.verb, id(key), id(key), calm);
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
      all.ask(verb, id("a"), id("a"), calm),
      all.ask(verb, id("a"), id("a"), calm),
      all.ask(verb, id("b"), id("b"), calm),
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
    for (let index = 0; index < 5; index += 1) void all.ask(verb, id("a"), id("a"), calm);
    await turn();
    expect(asked.map(({ keys }) => keys)).toEqual([["a"], ["a"], ["a"], ["a"], ["a"]]);
  });

  it("is forgotten when its last call is answered", async () => {
    const { asked, verb } = database();
    const all = gathering();
    for (let round = 0; round < 3; round += 1) {
      const answer = all.ask(verb, id("a"), id("a"), calm);
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
    const answers = ["even", "odd"].map((key) => all.ask(verb, id(key), id(key), calm));
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
    void all.ask(verb, id("busy1"), id("busy1"), calm);
    void all.ask(verb, id("busy2"), id("busy2"), calm);
    await turn();
    const answers = ["a", "poison", "z"].map((key) => all.ask(verb, id(key), id(key), calm));
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
    const answers = ["a", "b", "c"].map((key) => all.ask(verb, id(key), id(key), calm));
    await turn();
    const sent = asked.length;
    for (const flight of asked) flight.fail(new Error("the connection is lost"));
    for (const answer of answers) await expect(answer).rejects.toThrow("the connection is lost");
    await turn();
    expect(asked).toHaveLength(sent);
  });

  it("flights that take for ever do not keep the rest on the ground", async () => {
    const { asked, verb } = database();
    const all = gathering();
    for (const key of ["a", "b", "c"]) void all.ask(verb, id(key), id(key), calm);
    await turn();
    await turn();
    const before = asked.length;
    now += 1_001;
    void all.ask(verb, id("d"), id("d"), calm);
    await turn();
    expect(asked.slice(before).flatMap(({ keys }) => keys)).toContain("d");
  });

  it("past the limit a call is refused at once, and there is room again after an answer; what is urgent has twice as much", async () => {
    const { asked, verb } = database();
    const all = gathering();
    const answers = Array.from({ length: 10_000 }, (_, index) =>
      all.ask(verb, id(`k${index}`), id(`k${index}`), calm),
    );
    await expect(all.ask(verb, id("more"), id("more"), calm)).rejects.toThrow(StoreError);
    void all.ask(verb, id("urgent"), id("urgent"), { isUrgent: true });
    await expect(all.ask(verb, id("more"), id("more"), calm)).rejects.toThrow(/10001 calls are waiting/);
    await turn();
    for (const flight of asked) flight.answer();
    await answers[0];
    void all.ask(verb, id("more"), id("more"), calm);
    await expect(all.ask(verb, id("huge"), { ...id("huge"), bytes: 65 * 1024 * 1024 }, calm)).rejects.toThrow(
      StoreError,
    );
  });
});
