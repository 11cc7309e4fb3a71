import { ConfigError } from "../core/errors.ts";
import { isTenant, scopeOf } from "../core/scope.ts";
import type { Engine } from "../engine/engine.ts";
import { speaker } from "./request-name.ts";

/** Somebody speaks of everything that is kept about one tenant. */
export interface TenantRequestBy {
  readonly tenant: string;
  /** Who says so; told in the event. */
  readonly by: string;
}

export interface ForgetRequest extends TenantRequestBy {
  /** Called after each batch, with how much has been removed so far. */
  readonly onProgress?: (removed: number) => void;
}

export interface Forgotten {
  /** Records, messages and audit entries. */
  readonly removed: number;
  /** Records and messages that stay, because they are under way, in doubt or half done. */
  readonly unsettled: number;
}

/** The tenant's part of its scopes, and who speaks of it. */
export function tenantSaidBy(
  verb: string,
  { tenant, by }: TenantRequestBy,
): { readonly tenantScope: string; readonly by: string } {
  return { tenantScope: tenantScope(verb, tenant), by: speaker(verb, by) };
}

export function tenantScope(verb: string, tenant: unknown): string {
  if (!isTenant(tenant)) throw new ConfigError(`latchkey.${verb} needs the tenant: tenant`);
  return scopeOf({ tenant, policy: "tenant", method: "", path: "" });
}

/** `removeNotes` takes away what is kept beside the records, once there are none that could need it. */
export async function forgetTenant(
  engine: Engine,
  request: ForgetRequest,
  removeNotes: (tenantScope: string) => Promise<void>,
): Promise<Forgotten> {
  const { tenantScope, by } = tenantSaidBy("forgetTenant", request);
  let removed = 0;
  let unsettled = 0;
  try {
    for (;;) {
      const counts = await engine.forget({ tenantScope, limit: batch });
      unsettled = counts.unsettled;
      if (counts.removed === 0) break;
      removed += counts.removed;
      request.onProgress?.(removed);
    }
    if (unsettled === 0) {
      await engine.ask("notes", () => removeNotes(tenantScope).then(() => true));
    }
  } finally {
    // Also where it was not brought to an end: some of them are gone.
    engine.forgetAnswers();
  }
  engine.events.emit({ type: "forgotten", tenantScope, how: "removed", by });
  return { removed, unsettled };
}

const batch = 500; // Small enough that no statement holds its locks for more than some milliseconds.
