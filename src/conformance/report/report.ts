import type { Fields } from "../wire.ts";

/** How a check ended. A warning is nothing that breaks the contract, or something that could not be known. */
export type Outcome = "pass" | "fail" | "warn" | "skipped";

/** One request and what came of it, fit to be shown: secrets are masked and bodies cut. */
export interface Exchange {
  readonly method: string;
  readonly url: string;
  readonly requestFields: Fields;
  readonly requestBody: string;
  readonly tookMs: number;
  readonly answer:
    | { readonly kind: "answered"; readonly status: number; readonly fields: Fields; readonly body: string }
    | { readonly kind: "none"; readonly reason: string };
}

export interface CheckResult {
  /** Stable, such as `replay.same-answer`. */
  readonly id: string;
  readonly topic: string;
  readonly title: string;
  readonly outcome: Outcome;
  /** What was seen, in one sentence or two. */
  readonly reason: string;
  readonly tookMs: number;
  readonly evidence: readonly Exchange[];
  /** How many more exchanges there were than are kept. */
  readonly evidenceLeftOut: number;
}

export interface Report {
  readonly url: string;
  readonly method: string;
  readonly profile: string;
  /** ISO 8601. */
  readonly startedAt: string;
  readonly tookMs: number;
  /** Whether a ledger was asked, without which a second execution that answers alike cannot be seen. */
  readonly seesEffects: boolean;
  readonly counts: Readonly<Record<Outcome, number>>;
  /** No check failed. */
  readonly passed: boolean;
  readonly checks: readonly CheckResult[];
}

export interface Progress {
  readonly done: number;
  readonly total: number;
  /** The check that has just ended. */
  readonly result: CheckResult;
}

/** One line that says it all. */
export function summaryOf({ counts, seesEffects, tookMs }: Report): string {
  const { pass, fail, warn, skipped } = counts;
  const seen = seesEffects ? "" : "; effects were not looked at";
  return `${pass} passed, ${fail} failed, ${warn} warnings, ${skipped} skipped in ${(tookMs / 1000).toFixed(1)} s${seen}`;
}

/** What an exchange was, in lines: for people, in every form of the report. */
export function linesOf({
  method,
  url,
  requestFields,
  requestBody,
  tookMs,
  answer,
}: Exchange): readonly string[] {
  const fieldLines = (fields: Fields, mark: string) =>
    fields.map(([name, value]) => `${mark} ${name}: ${value}`);
  const bodyLines = (body: string, mark: string) =>
    body === "" ? [] : body.split("\n").map((line) => `${mark} ${line}`);
  return [
    `> ${method} ${url}`,
    ...fieldLines(requestFields, ">"),
    ...bodyLines(requestBody, ">"),
    ...(answer.kind === "none"
      ? [`< no answer after ${tookMs} ms: ${answer.reason}`]
      : [
          `< ${answer.status} after ${tookMs} ms`,
          ...fieldLines(answer.fields, "<"),
          ...bodyLines(answer.body, "<"),
        ]),
  ];
}
