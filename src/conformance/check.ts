import type { Probe } from "./probe.ts";
import type { Outcome } from "./report/report.ts";

/** How a check ended, and why. */
export interface Finding {
  readonly outcome: Outcome;
  readonly reason: string;
}

export interface Check {
  /** Its topic and its name: `replay.same-answer`. */
  readonly id: string;
  /** What an API does that keeps the contract. */
  readonly title: string;
  /** A check without which this one says nothing of its own: where that one failed, this one is skipped. */
  readonly needs?: string;
  run(probe: Probe): Promise<Finding>;
}

export const pass = (reason: string): Finding => ({ outcome: "pass", reason });
export const fail = (reason: string): Finding => ({ outcome: "fail", reason });
export const warn = (reason: string): Finding => ({ outcome: "warn", reason });
export const skipped = (reason: string): Finding => ({ outcome: "skipped", reason });
