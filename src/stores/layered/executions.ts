import { BriefMap } from "../../core/brief-map.ts";
import type { RecordId } from "../../core/record.ts";
import type { Lease, ReserveRequest } from "../../core/store.ts";

/** One execution of this process, as far as the front has to know. */
export interface Execution extends RecordId {
  readonly name: string;
  readonly fingerprint: string;
  /** On the steady clock, as all times here that are not the truth's. */
  readonly startedAt: number;
  /** On the truth's clock, no later than it really does. Undefined while that is not known. */
  leaseEndsAt: number | undefined;
  isRenewing: boolean;
  /** When it is given up for lost: nobody has renewed it for long. */
  forgetAt: number;
  /** How often its outcome was told. Only the first time it is known to be what the truth has kept. */
  outcomes: number;
  /** For how many reasons it may be about to end. Nothing is pledged meanwhile. */
  endings: number;
  /** It does not end before; nothing if nothing was pledged. */
  pledgedUntil: number;
  /** When somebody else's wish to know is next looked for. */
  lookAt: number;
}

/** What this process executes, by lease. */
export class Executions {
  readonly #byLease = new BriefMap<Execution>();

  get size(): number {
    return this.#byLease.size;
  }

  begin(
    lease: Lease,
    { fingerprint, leaseMs }: ReserveRequest,
    { now, leaseEndsAt }: { readonly now: number; readonly leaseEndsAt: number | undefined },
  ): void {
    if (this.#byLease.size >= executionsMax) this.forgetLost(now);
    if (this.#byLease.size >= executionsMax) return;
    const name = nameOf(lease);
    this.#byLease.set(name, {
      name,
      scope: lease.scope,
      key: lease.key,
      fingerprint,
      startedAt: now,
      leaseEndsAt,
      isRenewing: false,
      forgetAt: now + leaseMs + lostMs,
      outcomes: 0,
      endings: 0,
      pledgedUntil: 0,
      lookAt: 0,
    });
  }

  find(lease: Lease): Execution | undefined {
    const execution = this.#byLease.get(nameOf(lease));
    return execution?.scope === lease.scope && execution.key === lease.key ? execution : undefined;
  }

  /** Until the answer is there its lease may be the old one or the new one. */
  renewing(execution: Execution): void {
    // What was not confirmed may still come to count, after anything that is asked for later.
    if (execution.isRenewing) execution.endings += 1;
    execution.isRenewing = true;
    execution.leaseEndsAt = undefined;
  }

  renewed(
    execution: Execution,
    lease: { readonly now: number; readonly leaseMs: number; readonly leaseEndsAt: number | undefined },
  ): void {
    execution.isRenewing = false;
    execution.leaseEndsAt = lease.leaseEndsAt;
    execution.forgetAt = lease.now + lease.leaseMs + lostMs;
  }

  forget({ name }: Execution): void {
    this.#byLease.delete(name);
  }

  all(): Execution[] {
    return this.#byLease.values();
  }

  /** Those whose owner has let go of them without a word. */
  forgetLost(now: number): void {
    for (const { name, forgetAt } of this.#byLease.values()) {
      if (forgetAt <= now) this.#byLease.delete(name);
    }
  }
}

/** An owner is unique for each reservation. */
function nameOf({ fence, owner }: Lease): string {
  return `${fence} ${owner}`;
}

/** Some megabytes. What comes on top is executed like any other; only the front learns its outcome later. */
const executionsMax = 20_000;

/** Whoever renews nothing for that long after its lease ran out has let go of it without a word. */
const lostMs = 60_000;
