import { StoreError } from "../../core/errors.ts";

/** What went wrong in the driver or on the server, said in a way that tells what to do. */
export function storeError(cause: unknown): StoreError {
  if (cause instanceof StoreError) return cause;
  const { code, message } = cause as { code?: unknown; message?: unknown };
  const text = String(message || code || cause);
  const hint = hints.find(([start]) => text.startsWith(start));
  if (hint !== undefined) return new StoreError(`Redis refused: ${hint[1]} (${text})`, { cause });
  // Where every address of a host was tried in vain, Node gives a code and no message.
  return new StoreError(`Redis did not do what it was asked to: ${text}`, { cause });
}

/** How the server begins an error, and what can be done about it. */
const hints: readonly (readonly [start: string, hint: string])[] = [
  ["OOM", "its memory is full, so give it more, or shorten the retention"],
  [
    "NOPERM",
    "the user of this client may not do that, so allow it the keys, channels and scripts of Latchkey",
  ],
  ["READONLY", "this is a replica, so connect to the primary"],
  ["NOREPLICAS", "too few replicas are in reach, as min-replicas-to-write demands"],
  ["MISCONF", "it cannot write its snapshots, and stops writing until it can"],
  ["LOADING", "it is still reading its data"],
  ["BUSY", "somebody's script has been running for too long"],
  ["CLUSTERDOWN", "nobody serves this part of the cluster at the moment"],
  ["MASTERDOWN", "it has lost its primary"],
];

/** Whether the server does not know a script by its name, so that nothing of it was executed. */
export function isUnknownScript(error: unknown): boolean {
  return String((error as { message?: unknown }).message).startsWith("NOSCRIPT");
}
