import { type AuditEntry, auditReasons } from "../core/audit.ts";
import type { Message } from "../core/outbox.ts";

/** What the audit trail says of a dead message that somebody has given a new life. */
export function requeued(
  { scope, key, attempts }: Pick<Message, "scope" | "key" | "attempts">,
  { by, at }: { readonly by: string; readonly at: number },
): Omit<AuditEntry, "id"> {
  const change = { from: "dead_letter", to: "requeued" } as const;
  return { at, scope, key, fence: attempts, ...change, by, reason: auditReasons.requeued };
}
