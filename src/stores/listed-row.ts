import type { ListedRecord, RecordId, RecordState } from "../core/record.ts";
import type { ColumnValue } from "./record-row.ts";

/** The columns that a list needs, by the names of `recordColumns`: nothing that takes room. */
export const listedColumns = [
  "state",
  "fence",
  "route",
  "created_at",
  "expires_at",
  "completed_at",
  "response_status",
  "reason",
  "lease_until",
  "reconcile_after",
  "claims",
  "escalated_at",
  "resume_after",
] as const;

/** What a list shows of a row. Which columns a state has is the table's business; only `claims` is there in every state. */
export function listedOf(
  { scope, key }: RecordId,
  row: Readonly<Record<(typeof listedColumns)[number], ColumnValue>>,
): ListedRecord {
  const state = row.state as RecordState;
  return {
    scope,
    key,
    state,
    fence: row.fence as number,
    route: textOf(row.route),
    createdAt: row.created_at as number,
    expiresAt: row.expires_at as number,
    completedAt: numberOf(row.completed_at),
    status: numberOf(row.response_status),
    reason: textOf(row.reason),
    leaseUntil: numberOf(row.lease_until),
    reconcileAfter: numberOf(row.reconcile_after),
    reconcileAttempts: state === "unknown" ? (row.claims as number) : undefined,
    escalatedAt: numberOf(row.escalated_at),
    resumeAfter: numberOf(row.resume_after),
  };
}

function textOf(value: ColumnValue): string | undefined {
  return (value as string | null) ?? undefined;
}

function numberOf(value: ColumnValue): number | undefined {
  return (value as number | null) ?? undefined;
}
