import { type AuditEntry, type AuditQuery, auditActors, auditReasons } from "../../core/audit.ts";
import { encodeProgress } from "../../core/phase.ts";
import type { RecordId, RecordState, UnknownRecord } from "../../core/record.ts";
import { encodeResponse, type StoredResponse } from "../../core/response.ts";
import type {
  ClaimOptions,
  Resolution,
  ResolveAnswer,
  Resumable,
  ResumableClaim,
  SweepCounts,
} from "../../core/store.ts";
import { decodeRequest } from "../../core/stored-request.ts";
import { backoffDoublingsMax, crashReason } from "../../core/transition.ts";
import type { Parameter, Row } from "./database.ts";
import type { Queries } from "./queries.ts";
import { durationMs, optionalDurationMs, type RecordRow, recordOf } from "./rows.ts";
import { auditTrail } from "./statements/audit.ts";
import { recordName } from "./statements/sql.ts";
import * as statements from "./statements/upkeep.ts";

/** `isListed`: every lease is listed from the beginning. */
export async function sweep(
  queries: Queries,
  options: { readonly limit: number; readonly unclaimed: StoredResponse; readonly isListed: boolean },
): Promise<SweepCounts> {
  if (!options.isListed) await queries.one(statements.listLeases);
  const { status, head, body } = encodeResponse(options.unclaimed);
  const { unknown, retryable, unclaimed } = await queries.one<SweptRow>(statements.sweep, [
    options.limit,
    crashReason,
    auditActors.sweeper,
    auditReasons.unclaimed,
    auditReasons.abandoned,
    status,
    head,
    body,
  ]);
  return { unknown, retryable, unclaimed };
}

export async function claimResumable(queries: Queries, options: ClaimOptions): Promise<ResumableClaim> {
  const rows = await queries.all<ResumableRow>(statements.claimResumable, [
    ...claimParameters(options),
    options.attemptsMax,
    auditActors.completer,
    auditReasons.gaveUp,
  ]);
  return { claimed: rows.flatMap(resumableOf), gaveUp: rows[0]?.hopeless ?? 0 };
}

export async function claimUnknown(
  queries: Queries,
  options: Omit<ClaimOptions, "attemptsMax">,
): Promise<readonly UnknownRecord[]> {
  const rows = await queries.all<IdentifiedRow>(statements.claimUnknown, claimParameters(options));
  return rows.flatMap((row) => {
    const record = recordOf(row, row);
    return record?.state === "unknown" ? [record] : [];
  });
}

export async function resolve(
  queries: Queries,
  id: RecordId,
  fence: number,
  resolution: Resolution,
  by: string,
): Promise<ResolveAnswer> {
  const [resolved] = await queries.all<{ expires: number }>(statements.resolve, [
    id.scope,
    id.key,
    fence,
    by,
    ...resolutionParameters(resolution),
    recordName(id),
  ]);
  if (resolved !== undefined) return { kind: "resolved", expiresAt: resolved.expires };
  const [found] = await queries.all<{ state: RecordState }>(statements.stateOf, [id.scope, id.key]);
  return { kind: "not-unknown", state: found?.state ?? "absent" };
}

export async function audit(queries: Queries, query: AuditQuery): Promise<readonly AuditEntry[]> {
  const { limit, before, scope, key } = query;
  const statement = auditTrail({
    before: before !== undefined,
    scope: scope !== undefined,
    key: key !== undefined,
  });
  const asked = [before, scope, key].filter((value) => value !== undefined);
  const rows = await queries.all<AuditRow>(statement, [limit, ...asked]);
  return rows.map(auditEntryOf);
}

export function auditEntryOf({ origin, target, actor, ...same }: AuditRow): AuditEntry {
  const { id, at, scope, key, fence, reason } = same;
  return { id, at, scope, key, fence, from: origin, to: target, by: actor, reason };
}

interface SweptRow extends Row {
  readonly unknown: number;
  readonly retryable: number;
  readonly unclaimed: number;
}

interface IdentifiedRow extends RecordRow {
  readonly scope: string;
  readonly key: string;
}

interface ResumableRow extends IdentifiedRow {
  readonly hopeless: number;
  readonly requesthead: string;
  readonly requestbody: Uint8Array;
}

export interface AuditRow extends Row {
  readonly id: string;
  readonly at: number;
  readonly scope: string;
  readonly key: string;
  readonly fence: number;
  readonly origin: RecordState;
  readonly target: RecordState;
  readonly actor: string;
  readonly reason: string;
}

/** Nothing for a row that only says how many were given up. */
function resumableOf(row: ResumableRow): Resumable[] {
  const record = recordOf(row, row);
  if (record?.state !== "pending" && record?.state !== "failed_retryable") return [];
  return [{ record, request: decodeRequest({ head: row.requesthead, body: row.requestbody }) }];
}

function claimParameters({ limit, backoff }: Omit<ClaimOptions, "attemptsMax">): Parameter[] {
  return [limit, durationMs(backoff.baseMs), durationMs(backoff.capMs), backoffDoublingsMax];
}

/** Why, the state, retention, when to resume, new progress, and the response, as `statements.resolve` takes them. */
function resolutionParameters(resolution: Resolution): Parameter[] {
  switch (resolution.kind) {
    case "complete": {
      const { status, head, body } = encodeResponse(resolution.response);
      const retention = durationMs(resolution.retentionMs);
      return [auditReasons.foundOut, "completed", retention, null, false, null, status, head, body];
    }
    case "release": {
      const { reason, retentionMs, resumeAfterMs, progress } = resolution;
      const resume = optionalDurationMs(resumeAfterMs);
      const encoded = encodeProgress(progress);
      return [reason, "failed_retryable", durationMs(retentionMs), resume, true, encoded, null, null, null];
    }
    case "escalate":
      return [resolution.reason, "unknown", null, null, false, null, null, null, null];
    default:
      return resolution satisfies never;
  }
}
