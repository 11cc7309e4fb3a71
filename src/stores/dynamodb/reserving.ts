import { auditReasons } from "../../core/audit.ts";
import { answerOf, type Decision, decide, isAnswer } from "../../core/decide.ts";
import type { Reservation, ReserveRequest } from "../../core/store.ts";
import { encodeRequest } from "../../core/stored-request.ts";
import { accepted, crashed, crashReason, reserved } from "../../core/transition.ts";
import { type Context, forgiving } from "./context.ts";
import type { Entry } from "./record-item.ts";
import type { Change, RecordWrite } from "./records.ts";

/**
 * A new key is written at once, on condition that it is new; where it is not, the refusal brings the record, so that a
 * replay takes one round trip as well. Only a worker, who comes for a record that is there, reads first.
 */
export function reserve(context: Context, request: ReserveRequest): Promise<Reservation> {
  return context.records.change(
    request,
    (entry) => decided(context, request, entry),
    request.mode === "claim" ? {} : { assume: "absent" },
  );
}

async function decided(
  context: Context,
  request: ReserveRequest,
  entry: Entry | undefined,
): Promise<Change<Reservation>> {
  const { bodies, clockSkewMs } = context;
  const now = context.now();
  const record = entry && forgiving(entry.record, clockSkewMs);
  const own = entry && ownReservation(request, entry, now);
  if (own !== undefined) return { answer: own };
  const decision = decide(record, request, now);
  if (decision.kind === "replay" && entry !== undefined) {
    const whole = await bodies.whole(entry, now);
    const response = whole.state === "completed" ? whole.response : decision.response;
    return { answer: { ...decision, response } };
  }
  if (isAnswer(decision)) return { answer: answerOf(decision) };
  const from = record;
  const by = request.owner;
  switch (decision.kind) {
    case "execute": {
      const { fence, after, progress, createdAt } = decision;
      const { scope, key, owner } = request;
      const isNewUse = after === "expired";
      const next = reserved(from, request, { fence, isNewUse }, now);
      const write = {
        record: next,
        lastOwner: owner,
        after,
        request: isNewUse ? encoded(request) : (entry?.request ?? encoded(request)),
        ...(after === "failed_retryable" || after === "crash" ? again(from, by, now) : {}),
      };
      const lease = { scope, key, fence, owner };
      return { answer: { kind: "execute", after, progress, createdAt, lease }, write };
    }
    case "accept": {
      const write = {
        record: accepted(from, request, decision, now),
        request: encoded(request),
        ...(decision.isNewUse ? {} : again(from, by, now)),
      };
      return { answer: { kind: "pending" }, write };
    }
    case "suspend":
      return suspended(decision, entry, { by, at: now });
    default:
      return decision satisfies never;
  }
}

/** Whoever asked before and got no answer, and asks again under the same name, gets what it was granted then. */
function ownReservation(
  request: ReserveRequest,
  { record, after }: Entry,
  now: number,
): Reservation | undefined {
  if (record.state !== "in_progress" || record.owner !== request.owner || request.mode === "accept")
    return undefined;
  if (record.fingerprint !== request.fingerprint || record.leaseUntil <= now) return undefined;
  const { scope, key, fence, owner, progress, createdAt } = record;
  return {
    kind: "execute",
    after: after ?? "absent",
    progress,
    createdAt,
    lease: { scope, key, fence, owner },
  };
}

function suspended(
  { record }: Extract<Decision, { kind: "suspend" }>,
  entry: Entry | undefined,
  found: { readonly by: string; readonly at: number },
): Change<Reservation> {
  const write = {
    record: crashed(record, found.at, { isRequestKept: entry?.request !== undefined }),
    request: entry?.request,
    audit: { from: record, reason: crashReason, ...found },
  };
  return { answer: { kind: "unknown", retryAfterMs: record.reconcileAfterMs, discovered: true }, write };
}

/** A request that failed, or whose owner is gone, is tried again. */
function again(from: Entry["record"] | undefined, by: string, at: number): Pick<RecordWrite, "audit"> {
  if (from === undefined) return {};
  const reason = from.state === "in_progress" ? auditReasons.takenOver : auditReasons.retried;
  return { audit: { from, by, reason, at } };
}

function encoded({ request }: ReserveRequest): Entry["request"] {
  return request && encodeRequest(request);
}
