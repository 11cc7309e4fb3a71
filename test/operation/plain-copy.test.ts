import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createLatchkey, type Latchkey } from "../../src/index.ts";
import { plainCopy } from "../../src/operation/plain-copy.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { createRides, insertRide, useFolder } from "../stores/sqlite-support.ts";

/** Whatever a handler could return: plain data, and everything that only looks like it, in each other. */
const anything = fc.letrec<{ any: unknown; object: unknown; array: unknown[]; leaf: unknown }>((tie) => ({
  any: fc.oneof({ depthSize: "small" }, tie("leaf"), tie("object"), tie("array")),
  object: fc.dictionary(
    fc.oneof(
      fc.string({ unit: "binary", maxLength: 3 }),
      fc.constantFrom("__proto__", "toString", "1", "01", "-1"),
    ),
    tie("any"),
    { maxKeys: 5, noNullPrototype: false },
  ),
  array: fc.oneof(
    fc.array(tie("any"), { maxLength: 5 }),
    fc.sparseArray(tie("any"), { maxLength: 3 }),
    fc.array(tie("any"), { maxLength: 3 }).map((items) => Object.freeze(items) as unknown[]),
  ),
  leaf: fc.oneof(
    {
      weight: 20,
      arbitrary: fc.oneof(fc.string({ unit: "binary" }), fc.boolean(), fc.integer(), fc.constant(null)),
    },
    { weight: 4, arbitrary: fc.double() },
    {
      weight: 1,
      arbitrary: fc.oneof(
        fc.constantFrom(undefined, -0, Number.NaN, Symbol("s"), ignored, 10n, new Map([[1, 2]]), /re/),
        fc.date(),
        fc.uint8Array({ maxLength: 3 }),
        fc.constantFrom(Object(1), Object("text"), Object(false)),
      ),
    },
  ),
}));

describe("a copy of plain data", () => {
  it("is what would be read back, and is written alike; or there is none", () => {
    let copies = 0;
    fc.assert(
      fc.property(anything.any, (value) => {
        const copy = plainCopy(value);
        if (copy === undefined) return;
        copies += 1;
        const text = JSON.stringify(value);
        expect(JSON.stringify(copy)).toBe(text);
        expectAlike(copy, JSON.parse(text));
      }),
      { numRuns: 2_000 },
    );
    // There is nothing to see where there never is a copy.
    expect(copies).toBeGreaterThan(500);
  });

  it("there is for all that JSON can say", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6, stringUnit: "binary" }), (value) => {
        const read = JSON.parse(JSON.stringify(value));
        const copy = plainCopy(read);
        expectAlike(copy, read);
      }),
    );
  });

  it.each<[string, unknown]>([
    ["nothing but null", null],
    ["an empty string", ""],
    ["false", false],
    ["zero", 0],
    ["halves of characters", { "\ud800": "\udfff" }],
    ["names that every object answers to", { constructor: 1, hasOwnProperty: [], valueOf: null }],
    ["a member of its own that is called __proto__", JSON.parse('{"a":1,"__proto__":{"b":[{}]},"c":2}')],
    ["numbers for names, which come first", { b: 1, 2: 1, 1: 1, "-1": 1, "01": 1 }],
    ["an array with members beside its items", Object.assign([1, 2], { total: 3 })],
    ["what is frozen", Object.freeze({ items: Object.freeze([Object.freeze({ id: 1 })]) })],
    ["a symbol that is not looked at", Object.defineProperty({ a: 1 }, Symbol("s"), { value: 1 })],
    ["a member that is not looked at", Object.defineProperty({ a: 1 }, "b", { value: ignored })],
    ["a proxy of plain data", new Proxy({ items: new Proxy([1, { a: 2 }], {}) }, {})],
    ["thirty levels", nested(30)],
  ])("there is of %s", (_what, value) => {
    const text = JSON.stringify(value);
    const copy = plainCopy(value);
    expectAlike(copy, JSON.parse(text));
    expect(JSON.stringify(copy)).toBe(text);
  });

  it.each<[string, () => unknown]>([
    ["nothing", () => undefined],
    ["a member without a value", () => ({ a: 1, b: undefined })],
    ["-0, which comes back as 0", () => [-0]],
    ["what is no number", () => ({ a: Number.NaN })],
    ["what is no finite number", () => [Number.POSITIVE_INFINITY]],
    ["a hole", () => new Array(2)],
    ["an item without a value", () => [1, undefined]],
    ["a function", () => ({ a: ignored })],
    ["a symbol", () => [Symbol("s")]],
    ["a member named by a symbol", () => ({ a: 1, [Symbol("s")]: 1 })],
    ["a bigint", () => ({ a: 1n })],
    ["a date", () => ({ at: new Date(0) })],
    ["a map", () => new Map()],
    ["bytes", () => new Uint8Array(2)],
    ["a boxed number", () => [Object(1)]],
    ["an instance of a class", () => new (class Ride {})()],
    ["an object without a prototype", () => Object.assign(Object.create(null), { a: 1 })],
    ["an object that says how it is written", () => ({ toJSON: () => 1 })],
    ["an array that says how it is written", () => Object.assign([1], { toJSON: () => 1 })],
    ["what goes round in circles", circle],
    ["what is nested deeper than anybody means to", () => nested(100_000)],
  ])("there is none of %s", (_what, make) => {
    expect(plainCopy(make())).toBeUndefined();
    expect(plainCopy({ deep: [make()] })).toBeUndefined();
  });

  it("there is none of what fails when it is looked at, which is said by whoever writes it", () => {
    const failing = {
      get secret(): string {
        throw new Error("not for you");
      },
    };
    expect(plainCopy(failing)).toBeUndefined();
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    expect(plainCopy({ proxy })).toBeUndefined();
  });

  it("there is none of a few things that are seen in millions of places", () => {
    let value: unknown = [1];
    for (let doubled = 0; doubled < 25; doubled += 1) value = [value, value];
    const from = performance.now();
    expect(plainCopy(value)).toBeUndefined();
    // All of it would be sixty million arrays, and the end of the process.
    expect(performance.now() - from).toBeLessThan(1_000);
    expect(plainCopy(Array.from({ length: 10_000 }, () => [1, 2]))).toHaveLength(10_000);
  });

  it("asks for what JSON asks for: what is there, what it says it is, and how long it was", () => {
    const objects = Object.prototype as { everywhere?: unknown };
    objects.everywhere = [1];
    try {
      expect(Object.keys(plainCopy({ own: 1 }) ?? {})).toEqual(["own"]);
    } finally {
      delete objects.everywhere;
    }
    const says = { toJSON: () => "something else" };
    const secretive = new Proxy(
      {},
      { has: () => false, get: (_, name) => (name === "toJSON" ? says.toJSON : undefined) },
    );
    expect(plainCopy(secretive)).toBeUndefined();
    const growing: unknown[] = [0];
    Object.defineProperty(growing, 0, { get: () => growing.push(1), enumerable: true });
    expect(plainCopy(growing)).toEqual([2]);
  });

  it("looks at each member once, so that the copy is what is written", () => {
    let looks = 0;
    const copy = plainCopy({
      get look() {
        looks += 1;
        return { looks };
      },
    });
    expect(copy).toEqual({ look: { looks: 1 } });
    expect(Object.getOwnPropertyDescriptor(copy, "look")).toMatchObject({
      writable: true,
      value: { looks: 1 },
    });
    expect(looks).toBe(1);
  });

  it("shares nothing with what was copied, nor one part of it with another", () => {
    const shared = { amounts: [1] };
    const value = { first: shared, second: shared };
    const copy = plainCopy(value);
    copy?.first.amounts.push(2);
    expect([value, copy]).toEqual([
      { first: { amounts: [1] }, second: { amounts: [1] } },
      { first: { amounts: [1, 2] }, second: { amounts: [1] } },
    ]);
  });
});

const place = useFolder();
const stores = { memory: () => memoryStore(), sqlite: () => sqliteStore(place.path) };

describe.each(["memory", "sqlite"] as const)("a result that is plain data, on %s", (name) => {
  let latchkey: Latchkey<unknown>;
  beforeEach(() => {
    latchkey = createLatchkey<unknown>({ store: stores[name](), tenant: "single" });
  });
  afterEach(async () => {
    await latchkey.close({ drainMs: 0 });
    await latchkey.store.close?.();
  });
  const request = { tenant: "acme", key: "key-1" };

  it.each<[string, () => unknown]>([
    ["an object", () => ({ id: "ride_1", fare: { amount: 10, currency: "EUR" }, stops: ["a", null, true] })],
    ["null", () => null],
    ["a string", () => "done"],
    ["false", () => false],
    ["nothing", () => undefined],
    ["a date", () => ({ at: new Date(0) })],
    ["what is not there", () => ({ a: undefined, b: [undefined, -0, Number.NaN] })],
    ["a member that is computed", counter],
    ["a member called __proto__", () => JSON.parse('{"__proto__":{"admin":true}}')],
  ])("is the same for the first caller and for those who ask again: %s", async (_what, make) => {
    const first = await latchkey.run(request, make);
    const second = await latchkey.run(request, () => "never run");
    expectAlike(first, second);
    expectAlike(first, JSON.parse(JSON.stringify(make()) ?? "null"));
  });

  it("is each caller's own to change, and not the handler's", async () => {
    const kept = { id: "ride_1", stops: [{ at: "a" }] };
    const change = (result: typeof kept) => {
      result.id = "changed";
      result.stops[0] = { at: "nowhere" };
      result.stops.push({ at: "b" });
    };
    const policy = { onInFlight: "wait" } as const;
    const both = [0, 1].map(() => latchkey.run({ ...request, policy }, async () => kept));
    for (const result of await Promise.all(both)) change(result);
    change(await latchkey.run(request, () => kept));
    const expected = { id: "ride_1", stops: [{ at: "a" }] };
    expect(await latchkey.run(request, () => kept)).toEqual(expected);
    expect(kept).toEqual(expected);
    // The same object, returned again under another key.
    expect(await latchkey.run({ ...request, key: "key-2" }, () => kept)).toEqual(expected);
  });

  it("is what it was when the handler returned it, whatever becomes of it later", async () => {
    const kept = { total: 1 };
    const running = latchkey.run(request, () => kept);
    // Neither sooner nor later than the handler's end may count.
    await latchkey.run({ ...request, key: "key-2" }, () => {
      kept.total = 2;
    });
    const first = await running;
    kept.total = 3;
    expectAlike(await latchkey.run(request, () => kept), first);
  });
});

describe("a result that is plain data", () => {
  it("gives way to the answer that was committed in a phase", async () => {
    const store = sqliteStore(place.path);
    const latchkey = createLatchkey({ store, tenant: "single" });
    const request = { tenant: "acme", key: "key-1", policy: { onCrash: "resume" } as const };
    const run = () =>
      latchkey.run(request, async (op) => {
        await op.atomic("booked", async (tx) => {
          createRides(tx);
          insertRide(tx, "ride_1");
          await op.respond(tx, { status: 200, body: { ride: "committed" } });
        });
        return { ride: "returned" };
      });
    expect(await run()).toEqual({ ride: "committed" });
    expect(await run()).toEqual({ ride: "committed" });
    await latchkey.close({ drainMs: 0 });
    await store.close();
  });
});

function ignored(): void {}

/** Another number each time that somebody looks. */
function counter(): unknown {
  let looks = 0;
  return {
    get looks() {
      looks += 1;
      return looks;
    },
  };
}

function circle(): unknown {
  const round: Record<string, unknown> = {};
  round.again = [round];
  return round;
}

function nested(levels: number): unknown {
  let value: unknown = { id: 1 };
  for (let level = 1; level < levels; level += 1) value = [value];
  return value;
}

/** The same values under the same names in the same order, of the same prototypes. */
function expectAlike(copy: unknown, read: unknown): void {
  if (typeof read !== "object" || read === null) {
    expect(copy).toBe(read);
    return;
  }
  const [copied, known] = [copy, read] as [Record<PropertyKey, unknown>, Record<PropertyKey, unknown>];
  expect(Object.getPrototypeOf(copied)).toBe(Object.getPrototypeOf(known));
  expect(Reflect.ownKeys(copied)).toEqual(Reflect.ownKeys(known));
  for (const name of Object.keys(known)) {
    expect(Object.getOwnPropertyDescriptor(copied, name)).toMatchObject({
      writable: true,
      enumerable: true,
      configurable: true,
    });
    expectAlike(copied[name], known[name]);
  }
}
