import { ConfigError } from "../core/errors.ts";
import type { RecordId } from "../core/record.ts";
import { isTenant, scopeOf } from "../core/scope.ts";
import { reasonCharactersMax, storableText } from "../core/text.ts";

/** A request, by its scope and key, or by its tenant and key where keys belong to tenants. */
export type RequestName = RecordId | { readonly tenant: string; readonly key: string };

/**
 * Which request somebody speaks of, and who, as it can be stored. `verb` is what they called; `named` says under which
 * key a request is stored.
 */
export function saidBy(
  verb: string,
  { of, by }: { readonly of: RequestName; readonly by: string },
  named: (id: RecordId) => RecordId = (id) => id,
): { readonly id: RecordId; readonly by: string } {
  return { by: speaker(verb, by), id: storedId(verb, of, named) };
}

/** Under which id a request is stored. */
export function storedId(
  verb: string,
  of: RequestName,
  named: (id: RecordId) => RecordId = (id) => id,
): RecordId {
  return named(recordIdOf(verb, of));
}

/** Who says so, as it can be stored. */
export function speaker(verb: string, by: unknown): string {
  if (typeof by === "string" && by.trim() !== "") return storableText(by, reasonCharactersMax);
  throw new ConfigError(`latchkey.${verb} needs to know who says so: by`);
}

function recordIdOf(verb: string, of: RequestName): RecordId {
  if ("scope" in of) return of;
  if (!isTenant(of.tenant)) throw new ConfigError(`latchkey.${verb} needs a scope or a tenant`);
  return { scope: scopeOf({ tenant: of.tenant, policy: "tenant", method: "", path: "" }), key: of.key };
}
