import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type Amount,
  emptyMeter,
  exchange,
  loanMs,
  type Meter,
  type MeterQuestion,
} from "../../src/core/meter.ts";
import { lastEnd, metersOf, metersText } from "../../src/core/meter-text.ts";

const start = Date.UTC(2026, 0, 1);
const minute = 60_000;

function question(overrides: Partial<MeterQuestion> = {}): MeterQuestion {
  return { spent: [], waiting: [], returned: undefined, kept: 0, ahead: 0, ...overrides };
}

/** So many who each want one. */
function waiting(count: number, ttlMs: number): MeterQuestion {
  return question({ waiting: Array.from({ length: count }, () => ({ amount: 1, ttlMs })) });
}

function terms(now: number, max: number, ttlMsMax = minute) {
  return { now: start + now, max, ttlMsMax };
}

describe("a meter", () => {
  it("lets in up to the limit, the first ones first, and says when the next may come", () => {
    const full = exchange(emptyMeter, waiting(12, minute), terms(0, 10));
    expect(full).toMatchObject({ granted: 10, used: 10 });
    expect(full.freeAfterMs).toBeGreaterThanOrEqual(minute);
    expect(full.freeAfterMs).toBeLessThanOrEqual(minute * (1 + 1 / 64));
    const later = exchange(full.meter, waiting(3, minute), terms(full.freeAfterMs, 10));
    expect(later).toMatchObject({ granted: 3, used: 3, freeAfterMs: 0 });
  });

  it("counts what was spent even if that is more than the limit, and lets in nobody until it has left", () => {
    const over = exchange(
      emptyMeter,
      { ...waiting(1, minute), spent: [{ amount: 30, ttlMs: minute }] },
      terms(0, 10),
    );
    expect(over).toMatchObject({ granted: 0, used: 30 });
  });

  it("has room again for what is given back, at once", () => {
    const full = exchange(emptyMeter, waiting(10, minute), terms(0, 10));
    const given = exchange(
      full.meter,
      { ...waiting(5, minute), spent: [{ amount: -4, ttlMs: minute }] },
      terms(100, 10),
    );
    expect(given).toMatchObject({ granted: 4, used: 10 });
  });

  it("never gives back more than was taken", () => {
    const given = exchange(emptyMeter, question({ spent: [{ amount: -4, ttlMs: minute }] }), terms(0, 10));
    expect(given.used).toBe(0);
    expect(exchange(given.meter, waiting(12, minute), terms(1, 10)).granted).toBe(10);
  });

  it("keeps what lives for ever, and says that nothing will become free", () => {
    const forever = Number.POSITIVE_INFINITY;
    const full = exchange(emptyMeter, waiting(10, forever), terms(0, 10, forever));
    const asked = exchange(full.meter, waiting(1, forever), terms(1e12, 10, forever));
    expect(asked).toMatchObject({ granted: 0, used: 10, freeAfterMs: Number.POSITIVE_INFINITY });
  });

  it("does not wait for what seems to live longer than its window, as after a clock was set back", () => {
    const ahead = exchange(emptyMeter, waiting(10, minute), terms(3_600_000, 10));
    const back = exchange(ahead.meter, waiting(1, minute), terms(0, 10));
    expect(back.granted).toBe(0);
    expect(back.freeAfterMs).toBeLessThanOrEqual(minute * (1 + 1 / 64));
  });

  it("lends at most a twentieth of the limit, to all processes together, and not what is not free", () => {
    const first = exchange(emptyMeter, question({ ahead: 40 }), terms(0, 1000));
    expect(first.lent?.amount).toBe(40);
    const second = exchange(first.meter, question({ ahead: 40 }), terms(1, 1000));
    expect(second.lent?.amount).toBe(10);
    expect(exchange(second.meter, question({ ahead: 40 }), terms(2, 1000)).lent).toBeUndefined();
    const full = exchange(emptyMeter, waiting(1000, minute), terms(0, 1000));
    expect(exchange(full.meter, question({ ahead: 1 }), terms(1, 1000)).lent).toBeUndefined();
  });

  it("counts what is lent as used until it is returned or has ended", () => {
    const lending = exchange(emptyMeter, question({ ahead: 5 }), terms(0, 100));
    expect(exchange(lending.meter, waiting(100, minute), terms(1, 100)).granted).toBe(95);
    const returned = question({ ...waiting(100, minute), returned: lending.lent });
    expect(exchange(lending.meter, returned, terms(1, 100)).granted).toBe(100);
    expect(exchange(lending.meter, waiting(100, minute), terms(2 * loanMs, 100)).granted).toBe(100);
  });

  it("takes nothing from others for a loan that has ended by itself", () => {
    const mine = exchange(emptyMeter, question({ ahead: 5 }), terms(0, 100));
    const theirs = exchange(mine.meter, question({ ahead: 5 }), terms(2 * loanMs, 100));
    const late = exchange(theirs.meter, question({ returned: mine.lent }), terms(2 * loanMs + 1, 100));
    expect(late.used).toBe(5);
  });
});

describe("a rate", () => {
  it("is never exceeded in any window, however processes spend, wait and tell", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 400 }),
        fc.integer({ min: 100, max: 5_000 }),
        fc.array(step, { minLength: 20, maxLength: 200 }),
        (max, perMs, steps) => {
          const admitted = simulate(steps, { max, perMs, processes: 3 });
          expect(mostInWindow(admitted, perMs)).toBeLessThanOrEqual(max);
        },
      ),
      { numRuns: 300 },
    );
  });

  it("comes within two percent of the limit while somebody always waits", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 5_000 }),
        fc.integer({ min: 1_000, max: 600_000 }),
        (max, perMs) => {
          let meter = emptyMeter;
          let now = 0;
          let admitted = 0;
          const windows = 20;
          while (now < windows * perMs) {
            const answer = exchange(meter, waiting(max, perMs), terms(now, max, perMs));
            meter = answer.meter;
            admitted += answer.granted;
            now += answer.freeAfterMs || perMs / 50;
          }
          expect(admitted).toBeGreaterThanOrEqual(max * windows * 0.98);
        },
      ),
      { numRuns: 50 },
    );
  });
});

describe("the text of meters", () => {
  it("gives the same meters back", () => {
    const amounts = fc
      .uniqueArray(fc.tuple(fc.integer({ min: 1, max: 2e12 }), fc.integer({ min: 1, max: 1e13 })), {
        selector: ([until]) => until,
      })
      .map((pairs) => pairs.map(([until, amount]) => ({ until, amount })).sort((a, b) => a.until - b.until));
    const meter = fc.record({ taken: amounts, lent: amounts });
    fc.assert(
      fc.property(fc.dictionary(fc.stringMatching(/^[a-z]{1,8}$/), meter), (meters) => {
        const kept = Object.entries(meters).filter(([, { taken, lent }]) => taken.length + lent.length > 0);
        expect({ ...metersOf(metersText(meters)) }).toEqual(Object.fromEntries(kept));
      }),
    );
  });

  it("keeps what never ends", () => {
    const taken = [
      { until: start, amount: 2 },
      { until: Number.POSITIVE_INFINITY, amount: 3 },
    ];
    const meters = { active: { taken, lent: [] } };
    expect(metersOf(metersText(meters))).toEqual(meters);
    expect(lastEnd(meters)).toBe(Number.POSITIVE_INFINITY);
  });

  it("is no meter at all if it cannot be read, and never an error", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary-ascii" }), (text) => {
        for (const { taken, lent } of Object.values(metersOf(text))) {
          for (const { until, amount } of [...taken, ...lent]) {
            expect(until).toBeGreaterThanOrEqual(0);
            expect(amount).toBeGreaterThan(0);
          }
        }
      }),
    );
    expect(metersOf("new:zz.-5|")).toEqual({});
    expect(metersOf("new:zz.0|")).toEqual({ new: { taken: [], lent: [] } });
  });

  it("stays far below what a note can hold, whatever keys live for", () => {
    let meter: Meter = emptyMeter;
    for (let index = 0; index < 2_000; index += 1) {
      const spent = [{ amount: 1_000_000, ttlMs: minute * 1.004 ** index }];
      meter = exchange(meter, question({ spent }), terms(0, 1e12, Number.POSITIVE_INFINITY)).meter;
    }
    expect(metersText({ bytes: meter }).length).toBeLessThan(6_000);
    expect(meter.taken.reduce((sum, { amount }) => sum + amount, 0)).toBe(2e9);
  });

  it.each([400, 401])(
    "is kept short without making what ends some time into what never ends: %d with an end",
    (count) => {
      const forever = Number.POSITIVE_INFINITY;
      const ending = Array.from({ length: count }, (_, index) => ({
        amount: 1,
        ttlMs: minute * 1.05 ** index,
      }));
      const asked = question({ spent: [...ending, { amount: 7, ttlMs: forever }] });
      const { taken } = exchange(emptyMeter, asked, terms(0, 1e12, forever)).meter;
      expect(taken.length).toBeLessThan(210);
      expect(taken.at(-1)).toEqual({ until: forever, amount: 7 });
    },
  );
});

const step = fc.record({
  afterMs: fc.integer({ min: 0, max: 400 }),
  process: fc.integer({ min: 0, max: 2 }),
  spends: fc.integer({ min: 0, max: 50 }),
  waits: fc.integer({ min: 0, max: 50 }),
  ahead: fc.integer({ min: 0, max: 50 }),
});

type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never;

/** Processes that spend what they were lent while it lasts, and tell of it within 400 ms. */
function simulate(
  steps: readonly Step[],
  options: { readonly max: number; readonly perMs: number; readonly processes: number },
): readonly Amount[] {
  const { max, perMs } = options;
  const admitted: Amount[] = [];
  const processes = Array.from({ length: options.processes }, () => ({
    credit: 0,
    until: 0,
    untold: 0,
    toldBy: Number.POSITIVE_INFINITY,
    lent: undefined as Amount | undefined,
  }));
  let meter = emptyMeter;
  let now = start;
  const tell = (one: (typeof processes)[number], waits: number, ahead: number) => {
    const kept = now < one.until ? one.credit : 0;
    const asked = {
      ...waiting(waits, perMs),
      spent: [{ amount: one.untold, ttlMs: perMs }],
      returned: one.lent,
      kept,
      ahead,
    };
    const answer = exchange(meter, asked, { now, max, ttlMsMax: perMs });
    meter = answer.meter;
    if (answer.granted > 0) admitted.push({ until: now, amount: answer.granted });
    Object.assign(one, {
      credit: answer.lent?.amount ?? 0,
      until: now + loanMs,
      untold: 0,
      toldBy: Number.POSITIVE_INFINITY,
      lent: answer.lent,
    });
  };
  for (const { afterMs, process, spends, waits, ahead } of steps) {
    const next = now + afterMs;
    for (const one of processes) {
      if (one.toldBy > next) continue;
      now = one.toldBy;
      tell(one, 0, 0);
    }
    now = Math.max(now, next);
    const one = processes[process] as (typeof processes)[number];
    const spent = now < one.until ? Math.min(spends, one.credit) : 0;
    if (spent > 0) {
      one.credit -= spent;
      one.untold += spent;
      one.toldBy = Math.min(one.toldBy, now + 400);
      admitted.push({ until: now, amount: spent });
    }
    if (waits > 0 || ahead > 0) tell(one, waits, ahead);
  }
  return admitted;
}

function mostInWindow(admitted: readonly Amount[], perMs: number): number {
  let most = 0;
  for (const { until: from } of admitted) {
    let sum = 0;
    for (const { until, amount } of admitted) if (until >= from && until < from + perMs) sum += amount;
    most = Math.max(most, sum);
  }
  return most;
}
