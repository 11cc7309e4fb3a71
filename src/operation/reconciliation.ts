import { PhaseError } from "../core/errors.ts";
import { downstreamKey, isOpen, type Phase, type Progress } from "../core/phase.ts";
import type { Policy } from "../core/policy.ts";
import type { RecordId, UnknownRecord } from "../core/record.ts";
import { redacted } from "../core/redaction.ts";
import type { StoredResponse } from "../core/response.ts";
import type { Resolution } from "../core/store.ts";
import { reasonCharactersMax, storableText } from "../core/text.ts";
import { toJsonText } from "./json.ts";
import { type OwnResponse, storedResponseOf } from "./own-response.ts";

/** What became of a request whose outcome was unknown. */
export type OutcomeVerdict =
  /** It was executed, with success or with a refusal that counts: this is its answer. */
  | { readonly kind: "completed"; readonly response: OwnResponse }
  /** The external call that was open has happened: the operation goes on from there. */
  | {
      readonly kind: "effect-done";
      readonly result: unknown;
      readonly reference?: string;
      /** The name of the effect, where more than one is open. */
      readonly phase?: string;
    }
  /** It is proven that nothing happened, or not the open calls: it may be tried again. */
  | { readonly kind: "not-executed"; readonly reason?: string }
  /** Nothing is in doubt but why it stopped: the operation goes on after what is recorded. */
  | { readonly kind: "resume"; readonly reason?: string }
  /** It cannot be told yet. */
  | { readonly kind: "unknown" };

/** A phase as reconciliation sees it, with the key under which the provider knows it. */
export interface KnownPhase {
  readonly kind: "atomic" | "effect";
  readonly name: string;
  /** `begun` may have happened; nothing is in doubt about the others. */
  readonly state: "done" | "begun" | "failed";
  readonly result: unknown;
  readonly reference: string | undefined;
  readonly idempotencyKey: string;
}

/** What the `reconcile` hook of a route is asked. */
export interface ReconcileQuestion extends RecordId {
  readonly route: string | undefined;
  readonly attempt: number;
  /** Why the outcome is not known. */
  readonly reason: string;
  readonly createdAt: number;
  /** How often this has been asked, this time included. */
  readonly asked: number;
  readonly phases: readonly KnownPhase[];
  /** The key with which an effect of this name calls its provider, whether or not it is among the phases. */
  idempotencyKeyOf(effect: string): string;
  readonly signal: AbortSignal;
}

/** Asks the outside world what became of a request. */
export type ReconcileHook = (question: ReconcileQuestion) => OutcomeVerdict | Promise<OutcomeVerdict>;

export function questionOf(record: UnknownRecord, signal: AbortSignal): ReconcileQuestion {
  const { scope, key, route, fence, reason, createdAt, reconcileAttempts, progress } = record;
  const phases = progress.map((phase) => knownPhase(record, phase));
  return {
    scope,
    key,
    route,
    attempt: fence,
    reason,
    createdAt,
    asked: reconcileAttempts,
    phases,
    idempotencyKeyOf: (effect) => downstreamKey(record, effect),
    signal,
  };
}

/** How a verdict ends an unknown outcome; undefined if it does not. */
export function resolutionOf(
  record: UnknownRecord,
  verdict: OutcomeVerdict,
  policy: Pick<Policy, "redact" | "replayHeaders" | "responseBytesMax" | "retentionMs">,
): Resolution | undefined {
  // Not for less than it was to be kept from the beginning, whichever route that was.
  const retentionMs = Math.max(policy.retentionMs, record.expiresAt - record.createdAt);
  const goOn = (reason: string, progress: Progress): Resolution => ({
    kind: "release",
    reason: storableText(reason, reasonCharactersMax),
    retentionMs,
    resumeAfterMs: 0,
    progress,
  });
  switch (verdict.kind) {
    case "completed":
      return { kind: "complete", response: answerOf(verdict.response, policy), retentionMs };
    case "effect-done":
      return goOn(
        "the external call has happened, and the operation goes on from there",
        withEffectDone(record.progress, verdict),
      );
    case "not-executed":
      return goOn(
        verdict.reason ?? "it is proven that nothing was executed",
        record.progress.map(notExecuted),
      );
    case "resume":
      if (record.progress.some(isOpen)) {
        throw new PhaseError(
          'the verdict is "resume", and an external call of this operation is still in doubt',
        );
      }
      return goOn(verdict.reason ?? "the operation goes on after what is recorded", record.progress);
    case "unknown":
      return undefined;
    default:
      verdict satisfies never;
      throw new PhaseError(
        `a verdict must be completed, effect-done, not-executed, resume or unknown, not ${JSON.stringify(verdict)}`,
      );
  }
}

/** Nobody gets this answer but retries, so nobody gets more than is stored of it. */
function answerOf(
  response: OwnResponse,
  policy: Pick<Policy, "redact" | "replayHeaders" | "responseBytesMax">,
): StoredResponse {
  const stored = storedResponseOf(response, policy);
  const { redact, responseBytesMax } = policy;
  if (redact === undefined) return stored;
  const onError = (cause: unknown) => {
    throw new PhaseError("the route's redact could not be applied to the answer of a verdict", { cause });
  };
  return redacted(stored, redact, { responseBytesMax, onError });
}

function knownPhase(id: UnknownRecord, phase: Phase): KnownPhase {
  return {
    kind: phase.kind,
    name: phase.name,
    state: phase.kind === "atomic" ? "done" : phase.state,
    result: "result" in phase ? JSON.parse(phase.result) : undefined,
    reference: phase.kind === "effect" ? phase.reference : undefined,
    idempotencyKey: downstreamKey(id, phase.name),
  };
}

function withEffectDone(
  progress: Progress,
  verdict: Extract<OutcomeVerdict, { kind: "effect-done" }>,
): Progress {
  const { phase: name } = verdict;
  const open = progress.filter((phase) => isOpen(phase) && (name === undefined || phase.name === name));
  const [effect, another] = open;
  if (another !== undefined) {
    throw new PhaseError(
      'the verdict is "effect-done", and more than one call is open: say which, with phase',
    );
  }
  if (effect?.kind !== "effect") {
    // What is known already may be said again.
    const isKnown = progress.some(
      (phase) =>
        phase.kind === "effect" && phase.state === "done" && (name === undefined || phase.name === name),
    );
    if (isKnown && !progress.some(isOpen)) return progress;
    throw new PhaseError('the verdict is "effect-done", and no such external call of this operation is open');
  }
  const at = progress.indexOf(effect);
  const reference = verdict.reference ?? effect.reference;
  return progress.toSpliced(at, 1, {
    kind: "effect",
    name: effect.name,
    state: "done",
    keyed: effect.keyed,
    result: toJsonText(verdict.result, `the result of "${effect.name}"`),
    ...(reference === undefined ? {} : { reference }),
  });
}

function notExecuted(phase: Phase): Phase {
  if (!isOpen(phase) || phase.kind !== "effect") return phase;
  return { kind: "effect", name: phase.name, state: "failed", keyed: phase.keyed };
}
