import { ConfigError } from "../../core/errors.ts";
import type { LimitName } from "../events.ts";

/** So many in any window of this length. */
export interface Rate {
  readonly max: number;
  readonly perMs: number;
}

/** What one tenant may do, over all processes on one store. What is left out is not limited. */
export interface TenantLimits {
  /** Keys that were not used before. */
  readonly newKeys?: Rate;
  /** Requests with a key, and reads of the status resource; ten for each new key if only `newKeys` is given. */
  readonly lookUps?: Rate;
  /** Keys that are kept. */
  readonly activeKeys?: number;
  /** What is kept under those keys, in bytes. */
  readonly storedBytes?: number;
}

export interface LimitsOptions extends TenantLimits {
  /** What is different for a tenant, by its name. Asked again from time to time; an infinite number lifts a limit. */
  readonly of?: (tenant: string) => TenantLimits | undefined;
}

/** One limit as a meter sees it. */
export interface Limit {
  readonly name: LimitName;
  readonly max: number;
  /** The length of a rate's window; undefined for what lives as long as the key. */
  readonly perMs: number | undefined;
}

/** Why somebody is not let in, and when it makes sense to come again. */
export interface Refusal extends Limit {
  readonly retryAfterMs: number;
}

export type ResolvedLimits = Readonly<Partial<Record<LimitName, Limit>>>;

/** What does not even look like limits. */
export function checkShape(options: LimitsOptions): void {
  if (typeof options !== "object" || options === null) {
    throw new ConfigError("limits must be an object such as { newKeys: { max: 100, perMs: 1000 } }");
  }
  if (options.of !== undefined && typeof options.of !== "function") {
    throw new ConfigError("limits.of must be a function of the tenant that returns its limits, or undefined");
  }
}

/** Throws one error that names everything that is wrong, so that a bad limit never meets a request. */
export function resolveLimits(...layers: readonly (TenantLimits | undefined)[]): ResolvedLimits {
  const chosen: { -readonly [Name in LimitName]?: TenantLimits[Name] } = {};
  for (const layer of layers) {
    if (layer?.newKeys !== undefined) chosen.newKeys = layer.newKeys;
    if (layer?.lookUps !== undefined) chosen.lookUps = layer.lookUps;
    if (layer?.activeKeys !== undefined) chosen.activeKeys = layer.activeKeys;
    if (layer?.storedBytes !== undefined) chosen.storedBytes = layer.storedBytes;
  }
  const { newKeys, activeKeys, storedBytes } = chosen;
  const lookUps =
    chosen.lookUps ?? (newKeys && { max: newKeys.max * lookUpsPerNewKey, perMs: newKeys.perMs });
  const complaints = [
    ...rateComplaints("newKeys", newKeys),
    ...rateComplaints("lookUps", chosen.lookUps),
    ...capComplaints("activeKeys", activeKeys),
    ...capComplaints("storedBytes", storedBytes),
  ];
  if (complaints.length > 0) throw new ConfigError(`the limits cannot be kept: ${complaints.join("; ")}`);
  return {
    ...(isFinal(newKeys?.max) ? { newKeys: { name: "newKeys", ...newKeys } } : {}),
    ...(isFinal(lookUps?.max) ? { lookUps: { name: "lookUps", ...lookUps } } : {}),
    ...(isFinal(activeKeys) ? { activeKeys: { name: "activeKeys", max: activeKeys, perMs: undefined } } : {}),
    ...(isFinal(storedBytes)
      ? { storedBytes: { name: "storedBytes", max: storedBytes, perMs: undefined } }
      : {}),
  } as ResolvedLimits;
}

/** A first request and its retries, with some room for clients that poll. */
const lookUpsPerNewKey = 10;

/** A shorter window would end before the processes have heard of each other; a longer one is a cap. */
export const perMsMin = 100;
export const perMsMax = 31 * 24 * 3_600_000;

function isFinal(max: number | undefined): boolean {
  return max !== undefined && Number.isFinite(max);
}

function rateComplaints(name: LimitName, rate: Rate | undefined): string[] {
  if (rate === undefined) return [];
  if (typeof rate !== "object" || rate === null) return [`${name} must be { max, perMs }`];
  const { max, perMs } = rate;
  const complaints = capComplaints(`${name}.max`, max ?? Number.NaN);
  if (!Number.isInteger(perMs) || perMs < perMsMin || perMs > perMsMax) {
    complaints.push(`${name}.perMs is ${perMs} and must be whole milliseconds from ${perMsMin} to 31 days`);
  }
  return complaints;
}

function capComplaints(name: string, max: number | undefined): string[] {
  if (max === undefined || max === Number.POSITIVE_INFINITY) return [];
  if (Number.isSafeInteger(max) && max >= 0) return [];
  return [`${name} is ${max} and must be a whole number, 0 or more, or Infinity for no limit`];
}
