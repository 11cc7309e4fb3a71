/**
 * How much of a limit is used, as all processes of a deployment see it: pure, so that each of them can compute the next
 * state from the one that it has read. What was taken leaves by itself when its time ends, so a rate is an amount that
 * lives for the length of its window, and a cap on what is kept is one that lives for as long as it is kept.
 */
export interface Meter {
  readonly taken: Amounts;
  /** What processes may let in without asking, and have not told of yet. It counts as taken. */
  readonly lent: Amounts;
}

/** In the order in which they end. */
export type Amounts = readonly Amount[];

export interface Amount {
  /** When it leaves, on the store's clock. */
  readonly until: number;
  readonly amount: number;
}

/** A negative amount gives back what was taken for as long. */
export interface Taking {
  readonly amount: number;
  readonly ttlMs: number;
}

/** What one process has to tell, and wants to know. */
export interface MeterQuestion {
  /** What it has let in: counts, whatever the limit says. */
  readonly spent: readonly Taking[];
  /** Those who wait to be let in, the first one first. */
  readonly waiting: readonly Taking[];
  /** What it was lent before. */
  readonly returned: Amount | undefined;
  /** What is left of that, and may be spent while this is on its way: it is lent again, whatever the limit says. */
  readonly kept: number;
  /** How much it would like to be lent in all. */
  readonly ahead: number;
}

export interface MeterTerms {
  readonly now: number;
  readonly max: number;
  /** Nothing lives for longer: what seems to was written under another limit, or before a clock was set back. */
  readonly ttlMsMax: number;
}

export interface MeterAnswer {
  readonly meter: Meter;
  /** How many of those who wait are let in. */
  readonly granted: number;
  readonly lent: Amount | undefined;
  /** What is taken now, what is lent included. */
  readonly used: number;
  /** When the first one who was not let in may be; 0 if all were. */
  readonly freeAfterMs: number;
}

export const emptyMeter: Meter = { taken: [], lent: [] };

/**
 * One exchange between a process and what all of them share. As long as a process tells of what it spends before what
 * it was lent has ended, no window of a limit's length ever holds more than the limit.
 */
export function exchange(meter: Meter, question: MeterQuestion, terms: MeterTerms): MeterAnswer {
  const { now, max } = terms;
  let taken = current(meter.taken, terms);
  for (const spent of question.spent) taken = withTaking(taken, spent, now);
  let lent = current(meter.lent, { ...terms, ttlMsMax: lentMs });
  const { returned } = question;
  // Where it has ended, nothing is there that ends as early: others lose nothing by it.
  if (returned !== undefined) lent = withAmount(lent, { until: returned.until, amount: -returned.amount });
  const lentToOthers = sum(lent);
  let used = sum(taken) + lentToOthers + question.kept;

  let granted = 0;
  for (const one of question.waiting) {
    if (used + one.amount > max) break;
    used += one.amount;
    granted += 1;
  }
  for (const one of mergedByTtl(question.waiting.slice(0, granted))) taken = withTaking(taken, one, now);

  const lendable = Math.min(
    Math.max(1, Math.floor(max * lentShareMax)) - lentToOthers,
    max - used + question.kept,
  );
  const amount = Math.max(question.kept, Math.min(question.ahead, Math.floor(lendable)));
  const loan = amount > 0 ? { until: endOf(now, lentMs), amount } : undefined;
  if (loan !== undefined) lent = withAmount(lent, loan);

  const refused = question.waiting[granted];
  return {
    meter: { taken: bounded(taken), lent },
    granted,
    lent: loan,
    used: used - question.kept + amount,
    freeAfterMs: refused === undefined ? 0 : freeAfter([...taken, ...lent], refused.amount, terms),
  };
}

/** How long the process that was lent something may spend it: what it spent last must be told before the loan ends. */
export const loanMs = 1000;
const lentMs = loanMs + 500;

/** Of a limit, over all processes: what they hold without needing it is what others are refused for nothing. */
const lentShareMax = 0.05;

/** Of the time that it lives, at most, by which an amount leaves late: 1.6 %, for at most 130 amounts to be kept. */
const granulesPerTtl = 64;

/** Rounded up, so that nothing leaves early. Powers of two, so that amounts with similar times come to end together. */
function endOf(now: number, ttlMs: number): number {
  if (!Number.isFinite(ttlMs)) return Number.POSITIVE_INFINITY;
  const granule = 2 ** Math.max(0, Math.floor(Math.log2(ttlMs / granulesPerTtl)));
  return Math.ceil((now + ttlMs) / granule) * granule;
}

function current(amounts: Amounts, { now, ttlMsMax }: MeterTerms): Amounts {
  const latest = endOf(now, ttlMsMax);
  let kept: Amounts = amounts.filter(({ until }) => until > now);
  const misplaced = kept.filter(({ until }) => until > latest);
  if (misplaced.length === 0) return kept;
  kept = kept.filter(({ until }) => until <= latest);
  return withAmount(kept, { until: latest, amount: sum(misplaced) });
}

function withTaking(amounts: Amounts, { amount, ttlMs }: Taking, now: number): Amounts {
  return withAmount(amounts, { until: endOf(now, ttlMs), amount });
}

/** What is given back is taken from what ends at that time or before: it was taken earlier. */
function withAmount(amounts: Amounts, { until, amount }: Amount): Amounts {
  if (amount === 0) return amounts;
  const next = [...amounts];
  let place = next.length;
  while (place > 0 && (next[place - 1] as Amount).until > until) place -= 1;
  if (amount > 0) {
    const before = next[place - 1];
    if (before?.until === until) next[place - 1] = { until, amount: before.amount + amount };
    else next.splice(place, 0, { until, amount });
    return next;
  }
  let owed = -amount;
  for (place -= 1; place >= 0 && owed > 0; place -= 1) {
    const one = next[place] as Amount;
    const part = Math.min(one.amount, owed);
    owed -= part;
    if (part === one.amount) next.splice(place, 1);
    else next[place] = { until: one.until, amount: one.amount - part };
  }
  return next;
}

/** Thousands may wait, and nearly always for the same. */
function mergedByTtl(takings: readonly Taking[]): readonly Taking[] {
  const byTtl = new Map<number, number>();
  for (const { amount, ttlMs } of takings) byTtl.set(ttlMs, (byTtl.get(ttlMs) ?? 0) + amount);
  return Array.from(byTtl, ([ttlMs, amount]) => ({ ttlMs, amount }));
}

/** Many different times to live would make a long list: then neighbours end together, with the later of them. */
function bounded(amounts: Amounts): Amounts {
  if (amounts.length <= amountsMax) return amounts;
  return amounts.flatMap((one, index) => {
    const next = amounts[index + 1];
    if (index % 2 === 1) return [];
    if (next === undefined) return [one];
    // What ends some time must not become what never ends.
    if (next.until === Number.POSITIVE_INFINITY) return [one, next];
    return [{ until: next.until, amount: one.amount + next.amount }];
  });
}

const amountsMax = 400;

function freeAfter(amounts: Amounts, wanted: number, { now, max }: MeterTerms): number {
  let used = sum(amounts);
  for (const { until, amount } of amounts.toSorted((a, b) => a.until - b.until)) {
    used -= amount;
    if (used + wanted <= max) return until - now;
  }
  return Number.POSITIVE_INFINITY;
}

function sum(amounts: Amounts): number {
  let total = 0;
  for (const { amount } of amounts) total += amount;
  return total;
}
