import type { RecordId, RecordState } from "./record.ts";

/** What an entry is about: a record, or a message whose deliveries had failed and that waits again. */
export type AuditedState = RecordState | "dead_letter" | "requeued";

/** One change of a record that was not the happy path: who made it, when, from what to what, and why. */
export interface AuditEntry extends RecordId {
  readonly id: string;
  readonly at: number;
  /** The attempt that the change ended, began or was about; of a message, how many of its deliveries had failed. */
  readonly fence: number;
  readonly from: AuditedState;
  readonly to: AuditedState;
  /** A process's own name for the request, `sweeper`, `completer`, `reconciler`, or whom an operator's tool names. */
  readonly by: string;
  readonly reason: string;
}

export interface AuditQuery extends Partial<RecordId> {
  readonly limit: number;
  /** For the next page: the id of the last entry of this one. */
  readonly before?: string;
}

/** The names under which Latchkey's own workers appear in the audit trail. */
export const auditActors = { sweeper: "sweeper", completer: "completer" } as const;

/** Why a record that was settled is executed again. */
export const auditReasons = {
  retried: "the request was sent again after an attempt that was proven not to have executed",
  takenOver: "the process that executed this request stopped, and another one went on",
  abandoned: "nobody went on with what was half done before it expired",
  gaveUp: "every attempt to finish this operation has failed",
  foundOut: "the outcome was found out",
  busted: "an operator said that this answer is not to be replayed any more",
  requeued: "an operator said that this message is to be delivered after all",
  unclaimed: "no worker executed the request before it expired",
} as const;
