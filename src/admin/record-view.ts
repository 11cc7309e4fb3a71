import type { AuditEntry } from "../core/audit.ts";
import { downstreamKey, type Phase } from "../core/phase.ts";
import { type IdempotencyRecord, type ListedRecord, listed } from "../core/record.ts";
import { isSealed, type StoredResponse } from "../core/response.ts";
import { tenantScopeOf } from "../core/scope.ts";
import { isSealedText } from "../privacy/envelope.ts";
import { timelineOf } from "./timeline.ts";
import type { DuplicatesView, PhaseView, RecordDetailView, RecordView, ResponseView } from "./views.ts";

/** Whether what clients and handlers have said is shown. */
export type Responses = "shown" | "hidden";

export function recordView(record: ListedRecord): RecordView {
  return {
    scope: record.scope,
    key: record.key,
    tenant: tenantScopeOf(record.scope),
    state: record.state,
    attempt: record.fence,
    route: record.route ?? null,
    createdAt: record.createdAt,
    expiresAt: record.expiresAt,
    completedAt: record.completedAt ?? null,
    status: record.status ?? null,
    reason: record.reason ?? null,
    leaseUntil: record.leaseUntil ?? null,
    reconcileAfter: record.reconcileAfter ?? null,
    reconcileAttempts: record.reconcileAttempts ?? null,
    escalatedAt: record.escalatedAt ?? null,
    resumeAfter: record.resumeAfter ?? null,
  };
}

export function recordDetailView(
  record: IdempotencyRecord,
  beside: {
    readonly audit: readonly AuditEntry[];
    readonly duplicates: DuplicatesView | null;
    readonly now: number;
    readonly responses: Responses;
  },
): RecordDetailView {
  const { responses, now, duplicates } = beside;
  return {
    ...recordView(listed(record)),
    fingerprint: record.fingerprint,
    onCrash: record.onCrash,
    owner: record.state === "in_progress" ? record.owner : null,
    phases: record.progress.map((phase) => phaseView(record, phase, responses)),
    response: record.state === "completed" ? responseView(record.response, responses) : null,
    timeline: timelineOf(record, beside.audit),
    duplicates,
    now,
  };
}

function phaseView(record: IdempotencyRecord, phase: Phase, responses: Responses): PhaseView {
  return {
    kind: phase.kind,
    name: phase.name,
    state: phase.kind === "atomic" ? "done" : phase.state,
    result: "result" in phase ? shownText(phase.result, responses) : null,
    reference: phase.kind === "effect" ? unsealedText(phase.reference) : null,
    idempotencyKey: downstreamKey(record, phase.name),
  };
}

function responseView(response: StoredResponse, responses: Responses): ResponseView {
  const { status } = response;
  if (response.kind === "omitted") {
    const { bodyBytes, because = "too-large" } = response;
    return { kind: "omitted", status, bodyBytes, because };
  }
  // How long it is says little about a sealed answer, and nothing that is true.
  if (isSealed(response.headers)) return { kind: "omitted", status, bodyBytes: null, because: "sealed" };
  const { headers, body } = response;
  const bodyBytes = body.byteLength;
  if (responses === "hidden") return { kind: "omitted", status, bodyBytes, because: "hidden" };
  const isCut = bodyBytes > shownBytesMax;
  return {
    kind: "full",
    status,
    headers,
    ...encoded(body.subarray(0, shownBytesMax), isCut),
    bodyBytes,
    isCut,
  };
}

function encoded(bytes: Uint8Array, isCut: boolean): { body: string; encoding: "utf8" | "base64" } {
  try {
    // With `stream`, a character that the cut goes through is left out instead of being an error.
    const body = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes, { stream: isCut });
    return { body, encoding: "utf8" };
  } catch {
    return { body: Buffer.from(bytes).toString("base64"), encoding: "base64" };
  }
}

/** A handler's own words, if they may be shown and can be read; as far as somebody would read them. */
export function shownText(text: string, responses: Responses): string | null {
  return responses === "hidden" ? null : (unsealedText(text)?.slice(0, shownBytesMax) ?? null);
}

function unsealedText(text: string | undefined): string | null {
  return text === undefined || isSealedText(text) ? null : text;
}

/** More than anybody reads on a page. */
const shownBytesMax = 65_536;
