/*
 * All scopes of one tenant, as databases find them: the tenant's own, and those of its endpoints, which begin with it
 * and a space. Two ranges of an index whose text is compared byte for byte; a pattern would need its wildcards escaped.
 */

/** A condition on the column `scope`. Parameters: `tenantScopes`. */
export const isOfTenant = "(scope = ? OR (scope >= ? AND scope < ?))";

/** The exclamation mark is what comes next after the space. */
export function tenantScopes(tenantScope: string): [string, string, string] {
  return [tenantScope, `${tenantScope} `, `${tenantScope}!`];
}
