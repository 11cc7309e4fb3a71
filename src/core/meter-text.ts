import type { Amounts, Meter } from "./meter.ts";

/** The meters of one tenant, by their names. */
export type Meters = Readonly<Record<string, Meter>>;

/**
 * Meters as a short text: `name:taken|lent`, apart by spaces. Each amount is `until.amount` with the first end as it is
 * and each later one as what it is later by, all to the base of 36; `~` is never.
 */
export function metersText(meters: Meters): string {
  return Object.entries(meters)
    .filter(([, { taken, lent }]) => taken.length > 0 || lent.length > 0)
    .map(([name, { taken, lent }]) => `${name}:${amountsText(taken)}|${amountsText(lent)}`)
    .join(" ");
}

/** A text that cannot be read says nothing about what was used: counting begins anew, and money is not held up. */
export function metersOf(text: string): Meters {
  const meters: Record<string, Meter> = {};
  for (const part of text.split(" ")) {
    const [, name, taken, lent] = meterPattern.exec(part) ?? [];
    if (name === undefined || taken === undefined || lent === undefined) continue;
    meters[name] = { taken: amountsOf(taken), lent: amountsOf(lent) };
  }
  return meters;
}

/** When the last amount leaves. */
export function lastEnd(meters: Meters): number {
  let last = 0;
  for (const { taken, lent } of Object.values(meters)) {
    last = Math.max(last, taken.at(-1)?.until ?? 0, lent.at(-1)?.until ?? 0);
  }
  return last;
}

const meterPattern = /^([a-z]+):([\d.,a-z~]*)\|([\d.,a-z~]*)$/;

function amountsText(amounts: Amounts): string {
  let before = 0;
  return amounts
    .map(({ until, amount }) => {
      const end = Number.isFinite(until) ? (until - before).toString(36) : "~";
      before = until;
      return `${end}.${amount.toString(36)}`;
    })
    .join(",");
}

function amountsOf(text: string): Amounts {
  let until = 0;
  const amounts: { until: number; amount: number }[] = [];
  for (const part of text === "" ? [] : text.split(",")) {
    const [end = "", size = ""] = part.split(".");
    until += end === "~" ? Number.POSITIVE_INFINITY : Number.parseInt(end, 36);
    const amount = Number.parseInt(size, 36);
    if (Number.isNaN(until) || !(amount > 0)) return [];
    amounts.push({ until, amount });
  }
  return amounts;
}
