import { asRecordedFingerprint } from "../core/binding.ts";
import type { RecordId } from "../core/record.ts";
import type { Engine } from "../engine/engine.ts";

/**
 * What a route's `binding` answers for a worker that it has recognized by the worker's own credentials: the kept request
 * goes on under the session that it came from. It counts only for a worker's claim.
 */
export const asRecorded: unique symbol = Symbol("latchkey.asRecorded");

export type Binding = string | typeof asRecorded | undefined;

/** Names what a key is tied to, from the framework's own request: a session, a token, a client's certificate. */
export type BindingOf<Native> = (request: Native) => Binding | Promise<Binding>;

/** Whether something a key can be tied to was named. */
export function isBinding(
  binding: unknown,
  { isClaim }: { readonly isClaim: boolean },
): binding is string | typeof asRecorded {
  return binding === asRecorded ? isClaim : typeof binding === "string" && binding !== "";
}

/** What a worker's request has to be compared by: it has the request, and the record knows the session. */
export async function claimedFingerprint(engine: Engine, id: RecordId, fingerprint: string): Promise<string> {
  const reading = await engine.read(id);
  return asRecordedFingerprint(fingerprint, reading?.record?.fingerprint);
}
