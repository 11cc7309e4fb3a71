import { encodeProgress } from "../../core/phase.ts";
import { encodeResponse } from "../../core/response.ts";
import type { Advance, Lease, RenewAnswer, SettleAnswer, Settlement } from "../../core/store.ts";
import { settledStates } from "../../core/transition.ts";
import { arrayLiteral } from "./arrays.ts";
import type { Parameter } from "./database.ts";
import type { Queries } from "./queries.ts";
import { durationMs, optionalDurationMs, type SettledRow } from "./rows.ts";
import { advance as advanceStatement } from "./statements/phases.ts";
import * as statements from "./statements/records.ts";
import { recordName } from "./statements/sql.ts";

export async function settle(queries: Queries, lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
  const held = heldParameters(lease);
  const { statement, parameters } = settlementStatement(settlement);
  const told = [...held, ...parameters, recordName(lease)];
  const [settled] = await queries.all<{ expires: number }>(statement, told);
  if (settled !== undefined) return { kind: "settled", expiresAt: settled.expires };
  // The same lease may say the same thing twice: its first word may have been heard, and the answer lost.
  const [before] = await queries.all<SettledRow>(statements.settledBefore, held);
  const isRepeated = before?.state === settledStates[settlement.kind];
  return isRepeated ? { kind: "settled", expiresAt: before.expires } : { kind: "lost" };
}

export async function renew(
  queries: Queries,
  leases: readonly Lease[],
  leaseMs: number,
): Promise<readonly RenewAnswer[]> {
  if (leases.length === 0) return [];
  const rows = await queries.all<{ held: boolean }>(statements.renew, [
    arrayLiteral(leases.map((lease) => lease.scope)),
    arrayLiteral(leases.map((lease) => lease.key)),
    arrayLiteral(leases.map((lease) => lease.fence)),
    arrayLiteral(leases.map((lease) => lease.owner)),
    durationMs(leaseMs),
  ]);
  return rows.map(({ held }) => (held ? "held" : "lost"));
}

export async function advance(
  queries: Queries,
  lease: Lease,
  { progress, onCrash }: Advance,
): Promise<RenewAnswer> {
  const parameters = [...heldParameters(lease), encodeProgress(progress), onCrash];
  return (await queries.all(advanceStatement, parameters)).length > 0 ? "held" : "lost";
}

function heldParameters(lease: Lease): Parameter[] {
  return [lease.scope, lease.key, lease.fence, lease.owner];
}

/** The parameters are those between the lease and the record's name. */
function settlementStatement(settlement: Settlement): { statement: string; parameters: Parameter[] } {
  switch (settlement.kind) {
    case "complete": {
      const { status, head, body } = encodeResponse(settlement.response);
      const parameters = [status, head, body, durationMs(settlement.retentionMs)];
      return { statement: statements.complete, parameters };
    }
    case "release":
    case "suspend": {
      const { state, reason, retentionMs, resumeMs, reconcileMs } = giveUpColumns(settlement);
      return {
        statement: statements.giveUpLease,
        parameters: [state, reason, retentionMs, resumeMs, reconcileMs],
      };
    }
    default:
      return settlement satisfies never;
  }
}

/** What a lease that ends without an outcome leaves behind; null where it has nothing to say. */
export function giveUpColumns(settlement: Exclude<Settlement, { kind: "complete" }>): {
  readonly state: string;
  readonly reason: string;
  readonly retentionMs: number | null;
  readonly resumeMs: number | null;
  readonly reconcileMs: number | null;
} {
  const { kind, reason } = settlement;
  const state = settledStates[kind];
  switch (kind) {
    case "release": {
      const retentionMs = durationMs(settlement.retentionMs);
      const resumeMs = optionalDurationMs(settlement.resumeAfterMs);
      return { state, reason, retentionMs, resumeMs, reconcileMs: null };
    }
    case "suspend": {
      const reconcileMs = durationMs(settlement.reconcileAfterMs);
      return { state, reason, retentionMs: null, resumeMs: null, reconcileMs };
    }
    default:
      return kind satisfies never;
  }
}
