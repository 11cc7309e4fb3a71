import { hash } from "node:crypto";
import type { RecordId } from "./record.ts";

/** A JSON value, as text: phases give back what can be stored, whatever type the handler gave it. */
export type JsonText = string;

/** One step of an operation that has been written down. The list of them is how far the operation has come. */
export type Phase =
  /** A transaction that committed, and what it returned. */
  | { readonly kind: "atomic"; readonly name: string; readonly result: JsonText }
  /** An external call whose outcome is known. */
  | {
      readonly kind: "effect";
      readonly name: string;
      readonly state: "done";
      readonly keyed: boolean;
      readonly result: JsonText;
      /** The provider's own id for what the call made. */
      readonly reference?: string;
    }
  /**
   * An external call that may have happened (`begun`), or is known not to have (`failed`). A call that must not be
   * repeated is announced as begun before it is made; any other only appears when the handler went on without it.
   */
  | {
      readonly kind: "effect";
      readonly name: string;
      readonly state: "begun" | "failed";
      readonly keyed: boolean;
      readonly reference?: string;
      /** What the call threw, as far as it is data, for attempts that come after the handler went on without it. */
      readonly error?: JsonText;
    };

/** Every phase of one operation that has been written down, in order. */
export type Progress = readonly Phase[];

export const noProgress: Progress = [];

/** Stored beside the phases; a reader that meets a newer one must not guess. */
const encodingVersion = 1;

/** As text for one column, the same in every store; null where there is nothing to tell. */
export function encodeProgress(progress: Progress): string | null {
  return progress.length === 0 ? null : JSON.stringify({ v: encodingVersion, phases: progress });
}

export function decodeProgress(text: string | null): Progress {
  if (text === null) return noProgress;
  const { v, phases } = JSON.parse(text) as { v: number; phases: Progress };
  if (v !== encodingVersion) {
    throw new Error(
      `the phases of an operation have encoding version ${v}, this Latchkey reads version ${encodingVersion}: upgrade this process`,
    );
  }
  return phases;
}

/** An external call that may have happened, and must not be repeated to find out. */
export function isOpen(phase: Phase): boolean {
  return phase.kind === "effect" && phase.state === "begun" && !phase.keyed;
}

/** Whether a phase has left anything behind that an operation cannot be begun anew without. */
export function isBegun(phase: Phase): boolean {
  return phase.kind === "atomic" || phase.state !== "failed";
}

/** The name of the last phase that is known to have happened. */
export function recoveryPointOf(progress: Progress): string | undefined {
  return progress.findLast((phase) => phase.kind === "atomic" || phase.state === "done")?.name;
}

/**
 * The key that a provider, or the consumer of a message, deduplicates on: the same for every attempt, another one for
 * every other operation and step, and nothing can be read from it. An operation is told from a later one under the
 * same key, after the first has expired, by when it was first reserved: others may remember for longer than we do. The
 * parts are length-prefixed, so that no two different lists of them have one key.
 */
export function downstreamKey(
  operation: RecordId & { readonly createdAt: number },
  ...steps: readonly string[]
): string {
  const { scope, key, createdAt } = operation;
  const parts = [scope, key, String(createdAt), ...steps].map((part) => `${part.length}:${part}`).join("");
  return `lk_${hash("sha256", parts, "base64url")}`;
}
