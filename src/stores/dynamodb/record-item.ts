import { decodeProgress, encodeProgress } from "../../core/phase.ts";
import {
  type IdempotencyRecord,
  isSettled,
  type OnCrash,
  type RecordState,
  recordIdText,
} from "../../core/record.ts";
import { decodeResponse, type EncodedResponse, encodeResponse } from "../../core/response.ts";
import type { ExecuteAfter } from "../../core/store.ts";
import type { EncodedRequest } from "../../core/stored-request.ts";
import type { Entry } from "../moves.ts";
import { moment } from "../record-row.ts";
import { indexed, keyItem, recordKey, shardCount, shardOf } from "./keys.ts";
import {
  bytes,
  bytesInIf,
  bytesOf,
  type Item,
  number,
  numberIn,
  numberInIf,
  optionalNumber,
  optionalText,
  present,
  text,
  textIn,
  textInIf,
} from "./values.ts";

/** A record with what else its item says. A completed one has an empty body here if `parts` says where it is. */
export interface ItemEntry extends Entry, Extras {
  /** Another one after every write, whoever made it. */
  readonly version: string;
}

/** What an item has beside what every store has. */
export interface Extras {
  /** Why the latest execution began, while it lasts. */
  readonly after?: ExecuteAfter | undefined;
  /** Kept until the outcome is known. */
  readonly request?: EncodedRequest | undefined;
  /** The number of the latest audit entry. */
  readonly audited?: number | undefined;
  /** Where the body of the response is, if it was too large for the item. */
  readonly parts?: BodyParts | undefined;
}

/** A body that lies in items of its own. */
export interface BodyParts {
  readonly name: string;
  readonly count: number;
  readonly bytes: number;
  readonly sha256: string;
}

/** About what an item says of a body that lies elsewhere. */
export const elsewhere: BodyParts = { name: "", count: 0, bytes: 0, sha256: "" };

export function itemOf(
  record: IdempotencyRecord,
  version: string,
  extras: Extras & Pick<Entry, "lastOwner">,
): Item {
  const { state } = record;
  const isOver = state === "completed" || state === "expired";
  const request = isOver ? undefined : extras.request;
  const progress = optionalText(encodeProgress(record.progress));
  const base = present({
    ...keyItem(recordKey(record)),
    version: text(version),
    scope: text(record.scope),
    key: text(record.key),
    state: text(state),
    fingerprint: text(record.fingerprint),
    fence: number(record.fence),
    onCrash: text(record.onCrash),
    reconcileAfterMs: number(record.reconcileAfterMs),
    route: optionalText(record.route),
    createdAt: number(record.createdAt),
    expiresAt: number(record.expiresAt),
    owner: optionalText(extras.lastOwner),
    audited: optionalNumber(extras.audited),
    requestHead: optionalText(request?.head),
    requestBody: request && bytes(request.body),
    ...stateAttributes(record, extras),
    ...dueOf(record, request !== undefined),
    ...ttlOf(record),
  });
  // Whoever advances knows only the progress, and has to be told whether there is room for it.
  const baseBytes = state === "in_progress" ? number(bytesOf(base)) : undefined;
  return { ...base, ...present({ progress, baseBytes }) };
}

function stateAttributes(record: IdempotencyRecord, { after, parts }: Extras): Item {
  switch (record.state) {
    case "pending":
      return { resumeAfter: number(record.resumeAfter), claims: number(record.claims) };
    case "in_progress":
      return present({ leaseUntil: number(record.leaseUntil), after: optionalText(after) });
    case "completed":
      return {
        completedAt: number(record.completedAt),
        ...responseAttributes(encodeResponse(record.response), parts),
      };
    case "failed_retryable":
      return present({
        reason: text(record.reason),
        resumeAfter: optionalNumber(record.resumeAfter),
        claims: number(record.claims),
      });
    case "unknown":
      return present({
        reason: text(record.reason),
        reconcileAfter: number(record.reconcileAfter),
        claims: number(record.reconcileAttempts),
        escalatedAt: optionalNumber(record.escalatedAt),
      });
    case "expired":
      return {};
    default:
      return record satisfies never;
  }
}

export function responseAttributes({ status, head, body }: EncodedResponse, parts?: BodyParts): Item {
  const common = { responseStatus: number(status), responseHead: text(head) };
  if (parts === undefined)
    return present({ ...common, responseBody: body === null ? undefined : bytes(body) });
  return {
    ...common,
    bodyName: text(parts.name),
    bodyParts: number(parts.count),
    bodyBytes: number(parts.bytes),
    bodySha256: text(parts.sha256),
  };
}

/**
 * Where the sparse index shows the record: under what has to be done with it next, at the time when it may be done.
 * `lateAt` is when no worker is to come for it any more, and the sweeper is; of an unknown outcome, when it was first
 * reserved, so that the index alone says how old the oldest is.
 */
export function dueOf(record: IdempotencyRecord, isRequestKept: boolean): Item {
  const shard = shardOf(recordIdText(record), shardCount);
  switch (record.state) {
    case "in_progress":
      return indexed("lease", shard, record.leaseUntil);
    case "pending": {
      const { resumeAfter, expiresAt } = record;
      const next = isRequestKept ? Math.min(resumeAfter, expiresAt) : expiresAt;
      return { ...indexed("unfinished", shard, next), lateAt: number(expiresAt) };
    }
    case "failed_retryable": {
      const { resumeAfter, expiresAt } = record;
      if (isSettled(record)) return indexed("reap", shard, expiresAt);
      if (resumeAfter === undefined) {
        return { ...indexed("unfinished", shard, expiresAt), lateAt: number(expiresAt) };
      }
      // No worker can go on without the request, but it is to be found by whoever asks what is not settled.
      return indexed("unfinished", shard, isRequestKept ? resumeAfter : Number.POSITIVE_INFINITY);
    }
    case "unknown": {
      const isWaiting = record.escalatedAt === undefined;
      const place = isWaiting
        ? indexed("reconcile", shard, record.reconcileAfter)
        : indexed("escalated", shard, record.createdAt);
      return { ...place, lateAt: number(record.createdAt) };
    }
    case "completed":
      return indexed("reap", shard, record.expiresAt);
    case "expired":
      return indexed("gone", shard, record.expiresAt);
    default:
      return record satisfies never;
  }
}

/**
 * When DynamoDB may delete a record by itself: a good while after it has expired, so that its fence goes on meanwhile,
 * and never while anything is left to be done or found out. What was kept for audit stays.
 */
export function ttlOf(record: IdempotencyRecord): Item {
  if (!isSettled(record) || record.state === "expired") return {};
  return ttl(record.expiresAt);
}

export function ttl(expiresAt: number, graceMs = ttlGraceMs): Item {
  if (expiresAt + graceMs >= moment(Number.POSITIVE_INFINITY)) return {};
  return { ttl: number(Math.ceil((expiresAt + graceMs) / 1_000)) };
}

/** Time for the reaper to do as its policy says, before DynamoDB deletes without asking. */
const ttlGraceMs = 24 * 3_600_000;

export function entryOf(item: Item): ItemEntry {
  const head = textInIf(item, "requestHead");
  return {
    record: recordOf(item),
    version: textIn(item, "version"),
    lastOwner: textInIf(item, "owner") ?? null,
    requestHead: head ?? null,
    after: textInIf(item, "after") as ExecuteAfter | undefined,
    request:
      head === undefined ? undefined : { head, body: bytesInIf(item, "requestBody") ?? new Uint8Array() },
    audited: numberInIf(item, "audited"),
    parts: partsOf(item),
  };
}

export function partsOf(item: Item): BodyParts | undefined {
  const name = textInIf(item, "bodyName");
  if (name === undefined) return undefined;
  return {
    name,
    count: numberIn(item, "bodyParts"),
    bytes: numberIn(item, "bodyBytes"),
    sha256: textIn(item, "bodySha256"),
  };
}

function recordOf(item: Item): IdempotencyRecord {
  const common = {
    scope: textIn(item, "scope"),
    key: textIn(item, "key"),
    fingerprint: textIn(item, "fingerprint"),
    fence: numberIn(item, "fence"),
    onCrash: textIn(item, "onCrash") as OnCrash,
    reconcileAfterMs: numberIn(item, "reconcileAfterMs"),
    route: textInIf(item, "route"),
    progress: decodeProgress(textInIf(item, "progress") ?? null),
    createdAt: numberIn(item, "createdAt"),
    expiresAt: numberIn(item, "expiresAt"),
  };
  const state = textIn(item, "state") as RecordState;
  switch (state) {
    case "pending":
      return {
        ...common,
        state,
        resumeAfter: numberIn(item, "resumeAfter"),
        claims: numberIn(item, "claims"),
      };
    case "in_progress":
      return { ...common, state, owner: textIn(item, "owner"), leaseUntil: numberIn(item, "leaseUntil") };
    case "completed":
      return {
        ...common,
        state,
        completedAt: numberIn(item, "completedAt"),
        response: decodeResponse({
          status: numberIn(item, "responseStatus"),
          head: textIn(item, "responseHead"),
          body: bytesInIf(item, "responseBody") ?? null,
        }),
      };
    case "failed_retryable":
      return {
        ...common,
        state,
        reason: textIn(item, "reason"),
        resumeAfter: numberInIf(item, "resumeAfter"),
        claims: numberIn(item, "claims"),
      };
    case "unknown":
      return {
        ...common,
        state,
        reason: textIn(item, "reason"),
        reconcileAfter: numberIn(item, "reconcileAfter"),
        reconcileAttempts: numberIn(item, "claims"),
        escalatedAt: numberInIf(item, "escalatedAt"),
      };
    case "expired":
      return { ...common, state };
    default:
      return state satisfies never;
  }
}
