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
import { settled, settledStates } from "../../../core/transition.ts";
import { succeededOr } from "../../outcomes.ts";
import type { Parameter } from "../database.ts";
import { durationMs, optionalDurationMs } from "../rows.ts";
import { eachSettled, type Records } from "./records.ts";
import { newRevision } from "./rows.ts";
import { records as statements } from "./statements.ts";

export async function settle(records: Records, lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
  if (settlement.kind !== "complete") return giveUp(records, lease, settlement);
  const [completed] = await records.all<{ expires: number }>(statements.complete, [
    ...heldParameters(lease),
    ...responseParameters(settlement),
  ]);
  if (completed !== undefined) return { kind: "settled", expiresAt: completed.expires };
  return settledBefore(records, lease, settlement);
}

/** Status, head, body and retention. */
export function responseParameters(settlement: Extract<Settlement, { kind: "complete" }>): Parameter[] {
  const { status, head, body } = encodeResponse(settlement.response);
  return [status, head, body, durationMs(settlement.retentionMs)];
}

async function giveUp(
  records: Records,
  lease: Lease,
  settlement: Exclude<Settlement, { kind: "complete" }>,
): Promise<SettleAnswer> {
  for (;;) {
    const found = await records.find(lease);
    if (
      found?.record.state !== "in_progress" ||
      found.record.fence !== lease.fence ||
      found.owner !== lease.owner
    ) {
      return settledBefore(records, lease, settlement);
    }
    const next = settled(found.record, bounded(settlement), found.now);
    const kept = { owner: lease.owner, request: found.request };
    const why = { by: lease.owner, reason: settlement.reason };
    // It was only renewed, or it is not held any more: the next look tells.
    if (await records.change(found, next, kept, why)) return { kind: "settled", expiresAt: next.expiresAt };
  }
}

/** The same lease may say the same thing twice: its first word may have been heard, and the answer lost. */
async function settledBefore(records: Records, lease: Lease, { kind }: Settlement): Promise<SettleAnswer> {
  const found = await records.find(lease);
  const isRepeated =
    found?.record.state === settledStates[kind] &&
    found.record.fence === lease.fence &&
    found.owner === lease.owner;
  return isRepeated ? { kind: "settled", expiresAt: found.record.expiresAt } : { kind: "lost" };
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
function bounded<S extends Exclude<Settlement, { kind: "complete" }>>(settlement: S): S {
  switch (settlement.kind) {
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
