import type { Notes } from "../../core/notes.ts";
import type { StoredResponse } from "../../core/response.ts";
import { tenantScopeOf } from "../../core/scope.ts";
import type { Events } from "../events.ts";
import { Recency } from "../recency.ts";
import type { Runtime } from "../runtime.ts";
import type { Arrival } from "../verdict.ts";
import type { Allowance } from "./allowance.ts";
import {
  checkShape,
  type LimitsOptions,
  type Refusal,
  type ResolvedLimits,
  resolveLimits,
} from "./options.ts";
import { Tally } from "./tally.ts";
import { type MeterName, TenantMeters } from "./tenant-meters.ts";

/** At once where that is possible: a promise costs more than all the rest of it. */
export type Admission = Refusal | undefined | Promise<Refusal | undefined>;

/** What each tenant may do, in all processes together. */
export class Limits {
  readonly #options: LimitsOptions;
  readonly #defaults: ResolvedLimits;
  readonly #runtime: Runtime;
  readonly #events: Events;
  readonly #tally: Tally;
  readonly #tenants = new Map<string, TenantMeters>();
  readonly #recency = new Recency<TenantMeters>();

  constructor(
    options: LimitsOptions,
    host: {
      readonly notes: Notes;
      readonly runtime: Runtime;
      readonly events: Events;
      readonly storeTimeoutMs: number;
      readonly mayAsk: () => boolean;
    },
  ) {
    checkShape(options);
    this.#options = options;
    this.#defaults = resolveLimits(options);
    this.#runtime = host.runtime;
    this.#events = host.events;
    this.#tally = new Tally({
      ...host,
      onError: (error) => host.events.emit({ type: "store_error", verb: "notes", error }),
    });
  }

  /** False where nobody's are limited, so that they need not be told. */
  get areLookUpsLimited(): boolean {
    return this.#defaults.lookUps !== undefined || this.#options.of !== undefined;
  }

  /** Somebody asks about a key: to send a request with it, or to read what became of one. */
  lookUp(caller: {
    readonly tenant: string;
    readonly tenantScope: string;
    readonly isClaim: boolean;
  }): Admission {
    const now = this.#runtime.now();
    const tenant = this.#tenant(caller.tenantScope, caller.tenant, now);
    const meter = caller.isClaim ? "claims" : "looks";
    const allowance = tenant.allowance(meter);
    if (allowance === undefined) return undefined;
    const ttlMs = allowance.limit.perMs ?? 0;
    switch (allowance.take(1, ttlMs, now)) {
      case "granted":
        this.#told(tenant, allowance);
        return undefined;
      case "refused":
        return this.#refuse(tenant, allowance);
      case "ask":
        return this.#wait(tenant, allowance, 1, ttlMs).then((isGranted) =>
          isGranted ? undefined : this.#refuse(tenant, allowance),
        );
    }
  }

  /**
   * Takes what a new key needs. Whoever then finds that the key is not new gives it back. A refusal is not told yet: the
   * key may be one that is there.
   */
  takeKey(arrival: Arrival, now = this.#runtime.now()): Admission {
    const tenant = this.#tenantOf(arrival, now);
    let isDue = false;
    let isLow = false;
    for (const meter of keyMeters) {
      const allowance = tenant.allowance(meter);
      if (allowance === undefined) continue;
      const taken = allowance.take(amountOf(meter, arrival), ttlOf(allowance, arrival), now);
      if (taken !== "granted") {
        this.#giveBackBefore(meter, tenant, arrival);
        return taken === "refused" ? refusalBy(allowance, now) : this.#askForKey(tenant, arrival);
      }
      isDue = true;
      isLow ||= allowance.isLow;
    }
    if (isLow) this.#tally.now(tenant);
    else if (isDue) this.#tally.soon(tenant);
    return undefined;
  }

  giveKeyBack(arrival: Arrival): void {
    const tenant = this.#tenantOf(arrival, this.#runtime.now());
    this.#giveBackBefore(undefined, tenant, arrival);
    this.#toldAll(tenant);
  }

  /** A key turned out to be new although nothing was taken for it. */
  chargeKey(arrival: Arrival): void {
    const tenant = this.#tenantOf(arrival, this.#runtime.now());
    for (const meter of keyMeters) {
      const allowance = tenant.allowance(meter);
      allowance?.charge(amountOf(meter, arrival), ttlOf(allowance, arrival));
    }
    this.#toldAll(tenant);
  }

  /** An answer is kept: that is known only when it is there, so it counts whatever the limit says. */
  chargeResponse(scope: string, response: StoredResponse, retentionMs: number): void {
    const tenant = this.#tenants.get(tenantScopeOf(scope));
    const allowance = tenant?.allowance("bytes");
    if (tenant === undefined || allowance === undefined || response.kind === "omitted") return;
    allowance.charge(pairsBytes(response.headers) + response.body.byteLength, retentionMs);
    this.#told(tenant, allowance);
  }

  tellRefused(arrival: Arrival, { name }: Refusal): void {
    this.#events.emit({ type: "limited", tenantScope: tenantScopeOf(arrival.scope), limit: name });
  }

  flush(): Promise<void> {
    return this.#tally.flush();
  }

  close(): void {
    this.#tally.close();
  }

  async #askForKey(tenant: TenantMeters, arrival: Arrival): Promise<Refusal | undefined> {
    const now = this.#runtime.now();
    const asked = keyMeters.flatMap((meter) => {
      const allowance = tenant.allowance(meter);
      if (allowance === undefined) return [];
      const amount = amountOf(meter, arrival);
      const ttlMs = ttlOf(allowance, arrival);
      const taken = allowance.take(amount, ttlMs, now);
      const isGranted = taken === "ask" ? this.#wait(tenant, allowance, amount, ttlMs) : taken === "granted";
      return [{ allowance, amount, ttlMs, isGranted }];
    });
    this.#toldAll(tenant);
    const answers = await Promise.all(asked.map(({ isGranted }) => isGranted));
    const refusing = answers.indexOf(false);
    if (refusing === -1) return undefined;
    asked.forEach(({ allowance, amount, ttlMs }, index) => {
      if (answers[index]) allowance.giveBack(amount, ttlMs);
    });
    this.#toldAll(tenant);
    return refusalBy((asked[refusing] as (typeof asked)[number]).allowance, this.#runtime.now());
  }

  #giveBackBefore(last: MeterName | undefined, tenant: TenantMeters, arrival: Arrival): void {
    for (const meter of keyMeters) {
      if (meter === last) return;
      const allowance = tenant.allowance(meter);
      allowance?.giveBack(amountOf(meter, arrival), ttlOf(allowance, arrival));
    }
  }

  #wait(tenant: TenantMeters, allowance: Allowance, amount: number, ttlMs: number): Promise<boolean> {
    const answer = allowance.wait(amount, ttlMs);
    this.#tally.now(tenant);
    return answer;
  }

  #told(tenant: TenantMeters, allowance: Allowance): void {
    if (allowance.isLow) this.#tally.now(tenant);
    else this.#tally.soon(tenant);
  }

  #toldAll(tenant: TenantMeters): void {
    let isDue = false;
    let isLow = false;
    for (const meter of keyMeters) {
      const allowance = tenant.allowance(meter);
      if (allowance === undefined) continue;
      isDue ||= allowance.isDue;
      isLow ||= allowance.isLow;
    }
    if (isLow) this.#tally.now(tenant);
    else if (isDue) this.#tally.soon(tenant);
  }

  #refuse(tenant: TenantMeters, allowance: Allowance): Refusal {
    const { name } = allowance.limit;
    this.#events.emit({ type: "limited", tenantScope: tenant.tenantScope, limit: name });
    return refusalBy(allowance, this.#runtime.now());
  }

  #tenantOf({ scope, tenant }: Arrival, now: number): TenantMeters {
    const tenantScope = tenantScopeOf(scope);
    return this.#tenant(tenantScope, tenant ?? tenantScope, now);
  }

  #tenant(tenantScope: string, name: string, now: number): TenantMeters {
    let tenant = this.#tenants.get(tenantScope);
    if (tenant === undefined) {
      tenant = new TenantMeters(tenantScope);
      this.#setLimits(tenant, name, now);
      this.#tenants.set(tenantScope, tenant);
      this.#recency.add(tenant);
      if (this.#tenants.size > tenantsMax) this.#forgetOldest();
    } else {
      this.#recency.use(tenant);
      if (now - tenant.limitedAt >= limitsAgeMsMax) this.#setLimits(tenant, name, now);
    }
    return tenant;
  }

  #setLimits(tenant: TenantMeters, name: string, now: number): void {
    const isKnown = tenant.limitedAt !== Number.NEGATIVE_INFINITY;
    tenant.limitedAt = now;
    let limits = this.#defaults;
    try {
      const own = this.#options.of?.(name);
      if (own !== undefined) limits = resolveLimits(this.#options, own);
    } catch (error) {
      // A bug in `of` is no reason to fail a payment: what was known of the tenant goes on.
      process.emitWarning(error instanceof Error ? error : String(error));
      if (isKnown) return;
    }
    tenant.setLimit("new", limits.newKeys, now);
    tenant.setLimit("looks", limits.lookUps, now);
    tenant.setLimit("claims", limits.lookUps, now);
    tenant.setLimit("active", limits.activeKeys, now);
    tenant.setLimit("bytes", limits.storedBytes, now);
  }

  /** What it has to tell is told first; it is then forgotten with a later one. */
  #forgetOldest(): void {
    // More than one for each that comes, or what a crowd has left behind would stay for ever.
    for (let count = 0; count < 2 && this.#tenants.size > tenantsMax; count += 1) {
      const { oldest } = this.#recency;
      if (oldest === undefined) return;
      if (oldest.hasNews || this.#tally.isBusyWith(oldest)) {
        this.#recency.use(oldest);
      } else {
        this.#recency.delete(oldest);
        this.#tenants.delete(oldest.tenantScope);
      }
    }
  }
}

/** What a new key needs, and in this order: what is refused most often comes first. */
const keyMeters = ["new", "active", "bytes"] as const satisfies readonly MeterName[];

function amountOf(meter: (typeof keyMeters)[number], { key, scope, request }: Arrival): number {
  if (meter !== "bytes") return 1;
  const requestBytes =
    request === undefined ? 0 : request.target.length + pairsBytes(request.headers) + request.body.byteLength;
  return recordBytes + key.length + scope.length + requestBytes;
}

function ttlOf({ limit }: Allowance, { policy }: Arrival): number {
  return limit.perMs ?? policy.retentionMs;
}

function pairsBytes(pairs: readonly (readonly [string, string])[]): number {
  let bytes = 0;
  for (const pair of pairs) bytes += pair[0].length + pair[1].length;
  return bytes;
}

function refusalBy(allowance: Allowance, now: number): Refusal {
  return { ...allowance.limit, retryAfterMs: allowance.retryAfterMs(now) };
}

/** What a record takes beside its texts: fingerprint, times, numbers, and its entries in indexes. */
const recordBytes = 300;

/** A tenant takes about a kilobyte of memory. */
const tenantsMax = 10_000;

/** How soon a change of what `of` answers is noticed. */
const limitsAgeMsMax = 1000;
