/*
 * All scopes of one tenant, as databases find them: the tenant's own, and those of its endpoints, which begin with it
 * and a space. A range of an index whose text is compared byte for byte; a pattern would need its wildcards escaped.
 */

/** A condition on the column `scope`: the range, and what of it is the tenant's. Parameters: `tenantScopes`. */
export const isOfTenant = "(scope >= ? AND scope < ? AND (scope = ? OR scope >= ?))";

/** The exclamation mark is what comes next after the space. */
export function tenantScopes(tenantScope: string): [string, string, string, string] {
  return [tenantScope, `${tenantScope}!`, tenantScope, `${tenantScope} `];
}
