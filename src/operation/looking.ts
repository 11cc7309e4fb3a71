import { ConfigError } from "../core/errors.ts";
import type { RecordId } from "../core/record.ts";
import type { ListQuery, RecordPage, Store } from "../core/store.ts";
import type { Engine } from "../engine/engine.ts";
import { tenantScope } from "./forgetting.ts";

/** Which records somebody wants to see. A tenant is named as the application names it, or by its part of a scope. */
export interface ListRequest extends Omit<ListQuery, "limit"> {
  readonly limit?: number | undefined;
  readonly tenant?: string | undefined;
}

export function list(
  engine: Engine,
  store: Store,
  request: ListRequest,
  named?: (id: RecordId) => RecordId,
): Promise<RecordPage> {
  const { tenant, limit = rowsDefault, ...query } = request;
  if (!Number.isInteger(limit) || limit < 1 || limit > rowsMax) {
    throw new ConfigError(`limit is ${limit} and must be a whole number from 1 to ${rowsMax}`);
  }
  const scope = tenant === undefined ? query.tenantScope : tenantScope("list", tenant);
  const key = query.key === undefined ? undefined : storedKey(query.key, scope, named);
  return engine.ask("list", () => store.list({ ...query, key, tenantScope: scope, limit }));
}

/** A key that is stored hashed has a name only within its scope. */
function storedKey(key: string, scope: string | undefined, named: (id: RecordId) => RecordId = (id) => id) {
  const id = named({ scope: scope ?? "", key });
  if (scope !== undefined || id.key === key) return id.key;
  // An empty list would say that nobody has ever sent it.
  throw new ConfigError(
    "keys are stored hashed together with their scope, so that a key alone finds nothing: name its tenant, too",
  );
}

const rowsDefault = 100;

/** What one answer can hold without holding up others. */
const rowsMax = 1000;
