import type { ForgetCounts, ForgetOptions, UnknownCounts } from "../../core/store.ts";
import { everythingBusted } from "./busting.ts";
import type { Queries } from "./queries.ts";
import * as statements from "./statements/tenants.ts";

export async function forgetTenant(
  queries: Queries,
  { tenantScope, limit }: ForgetOptions,
): Promise<ForgetCounts> {
  const { removed } = await queries.one<{ removed: number }>(statements.forgetTenant, [
    tenantScope,
    limit,
    everythingBusted,
  ]);
  if (removed > 0) return { removed, unsettled: 0 };
  const { unsettled } = await queries.one<{ unsettled: number }>(statements.unsettledOf, [tenantScope]);
  return { removed, unsettled };
}

export async function unknownCounts(queries: Queries): Promise<UnknownCounts> {
  const { waiting, escalated, oldest } = await queries.one<{
    waiting: number;
    escalated: number;
    oldest: number;
  }>(statements.unknownCounts);
  return { waiting, escalated, oldestMs: oldest };
}
