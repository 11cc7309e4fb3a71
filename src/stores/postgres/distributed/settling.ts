import { encodeProgress } from "../../../core/phase.ts";
import { encodeResponse } from "../../../core/response.ts";
import type {
  Advance,
  HeartbeatAnswer,
  Lease,
  RenewAnswer,
  SettleAnswer,
  Settlement,
} from "../../../core/store.ts";
import { settling } from "../../moves.ts";
import { succeededOr } from "../../outcomes.ts";
import type { Parameter } from "../database.ts";
import { durationMs, optionalDurationMs } from "../rows.ts";
import { eachSettled, type Records } from "./records.ts";
import { newRevision } from "./rows.ts";
import { records as statements } from "./statements.ts";

export async function settle(records: Records, lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
  if (settlement.kind === "complete") {
    const [completed] = await records.all<{ expires: number }>(statements.complete, [
      ...heldParameters(lease),
      ...responseParameters(settlement),
    ]);
    if (completed !== undefined) return { kind: "settled", expiresAt: completed.expires };
  }
  // What it leads to depends on the record, and it may have been told before.
  const bound = bounded(settlement);
  return records.change(lease, (found, now) => settling(found, lease, bound, now));
}

/** Status, head, body and retention. */
export function responseParameters(settlement: Extract<Settlement, { kind: "complete" }>): Parameter[] {
  const { status, head, body } = encodeResponse(settlement.response);
  return [status, head, body, durationMs(settlement.retentionMs)];
}

export async function renew(
  records: Records,
  leases: readonly Lease[],
  leaseMs: number,
): Promise<readonly HeartbeatAnswer[]> {
  const outcomes = await eachSettled(leases, async (lease) => {
    const parameters = [...heldParameters(lease), durationMs(leaseMs)];
    return answerOf(await records.all(statements.renew, parameters));
  });
  return succeededOr(outcomes, "unknown");
}

export async function advance(
  records: Records,
  lease: Lease,
  { progress, onCrash }: Advance,
): Promise<RenewAnswer> {
  const parameters = [...heldParameters(lease), encodeProgress(progress), onCrash];
  return answerOf(await records.all(statements.advance, parameters));
}

function answerOf(rows: readonly unknown[]): RenewAnswer {
  return rows.length > 0 ? "held" : "lost";
}

/** The lease, and the revision that the record gets. */
export function heldParameters({ scope, key, fence, owner }: Lease): Parameter[] {
  return [scope, key, fence, owner, newRevision()];
}

/** What is meant to last for ever has an end all the same. */
function bounded(settlement: Settlement): Settlement {
  switch (settlement.kind) {
    case "complete":
      return { ...settlement, retentionMs: durationMs(settlement.retentionMs) };
    case "release": {
      const { resumeAfterMs } = settlement;
      const resume = optionalDurationMs(resumeAfterMs);
      return {
        ...settlement,
        retentionMs: durationMs(settlement.retentionMs),
        ...(resume === null ? {} : { resumeAfterMs: resume }),
      };
    }
    case "suspend":
      return { ...settlement, reconcileAfterMs: durationMs(settlement.reconcileAfterMs) };
    default:
      return settlement satisfies never;
  }
}
