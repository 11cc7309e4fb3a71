import { ConfigError } from "../core/errors.ts";
import { shownTenant } from "../core/pseudonym.ts";

export interface MetricsOptions {
  /** How many tenants are shown with their duplicates; 20 if left out, 0 for none. */
  readonly tenantsMax?: number;
  /**
   * What a tenant is called in metrics. If left out it is its own name, or a digest of it where it looks like an e-mail
   * address, a phone number or a card.
   */
  readonly tenantLabel?: (tenant: string) => string;
}

const tenantsMaxDefault = 20;
export const tenantsMaxMax = 1_000; // Each is a time series, from each process.

export function resolveMetricsOptions(options: MetricsOptions): Required<MetricsOptions> {
  const { tenantsMax = tenantsMaxDefault, tenantLabel = shownTenant } = options;
  if (!Number.isInteger(tenantsMax) || tenantsMax < 0 || tenantsMax > tenantsMaxMax) {
    throw new ConfigError(
      `tenantsMax is ${tenantsMax} and must be a whole number from 0 to ${tenantsMaxMax}`,
    );
  }
  if (typeof tenantLabel !== "function") {
    throw new ConfigError(
      "tenantLabel must be a function of the tenant that returns what it is called in metrics",
    );
  }
  return { tenantsMax, tenantLabel };
}
