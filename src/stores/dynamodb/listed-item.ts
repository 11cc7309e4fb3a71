import type { ListedRecord, RecordState } from "../../core/record.ts";
import { type Item, numberIn, numberInIf, textIn, textInIf } from "./values.ts";

/** Nothing that takes room. */
export const listedAttributes = [
  "pk",
  "sk",
  "scope",
  "key",
  "state",
  "fence",
  "route",
  "createdAt",
  "expiresAt",
  "completedAt",
  "responseStatus",
  "reason",
  "leaseUntil",
  "reconcileAfter",
  "claims",
  "escalatedAt",
  "resumeAfter",
];

/** Which attributes an item has is its state's business; only `claims` stands for more than one thing. */
export function listedOf(item: Item): ListedRecord {
  const state = textIn(item, "state") as RecordState;
  return {
    scope: textIn(item, "scope"),
    key: textIn(item, "key"),
    state,
    fence: numberIn(item, "fence"),
    route: textInIf(item, "route"),
    createdAt: numberIn(item, "createdAt"),
    expiresAt: numberIn(item, "expiresAt"),
    completedAt: numberInIf(item, "completedAt"),
    status: numberInIf(item, "responseStatus"),
    reason: textInIf(item, "reason"),
    leaseUntil: numberInIf(item, "leaseUntil"),
    reconcileAfter: numberInIf(item, "reconcileAfter"),
    reconcileAttempts: state === "unknown" ? numberInIf(item, "claims") : undefined,
    escalatedAt: numberInIf(item, "escalatedAt"),
    resumeAfter: numberInIf(item, "resumeAfter"),
  };
}
