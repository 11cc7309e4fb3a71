import type { RecordId } from "../../../src/core/record.ts";
import type { Lease, Reservation, ReserveRequest } from "../../../src/core/store.ts";

/** Fine enough to tell what came first in this process, and about what the clock of the servers says. */
export function now(): number {
  return performance.timeOrigin + performance.now();
}

/** When something was asked for and answered, on the clock of all processes and servers, which is one here. */
export interface Span {
  readonly askedAt: number;
  readonly answeredAt: number;
}

/** An answer that somebody wanted to be kept. */
interface Version extends RecordId {
  readonly fingerprint: string;
  readonly fence: number;
  readonly body: Buffer;
  /** Undefined until the truth has said so. */
  expiresAt: number | undefined;
  /** The truth did not take it. */
  wasRefused: boolean;
  /** When the bust was said, was confirmed, and who has heard of it since when. */
  bust: { readonly askedAt: number; answeredAt: number; readonly heardBy: Map<number, number> } | undefined;
}

interface Execution {
  readonly fingerprint: string;
  readonly begunAt: number;
  /** Its lease is over then, at the latest. */
  leaseUntil: number;
  /** When the truth confirmed its end. */
  endedAt: number;
}

/** Postgres has the same clock, and reads it in another way. */
const toleranceMs = 3;

/** Everything that was asked for and answered, and whether the truth could have said what the front has said. */
export class Ledger {
  readonly violations: string[] = [];
  readonly counts = { replay: 0, inFlight: 0, truth: 0, busts: 0, expiries: 0 };
  readonly #versions = new Map<string, Version>();
  readonly #executions = new Map<string, Map<string, Execution>>();
  readonly #deafSince = new Map<number, number>();

  begun(request: ReserveRequest, lease: Lease, { askedAt, answeredAt }: Span): void {
    const executions = this.#executions.get(idOf(lease)) ?? new Map<string, Execution>();
    this.#executions.set(idOf(lease), executions);
    executions.set(lease.owner, {
      fingerprint: request.fingerprint,
      begunAt: askedAt,
      leaseUntil: answeredAt + request.leaseMs,
      endedAt: Number.POSITIVE_INFINITY,
    });
  }

  renewed(lease: Lease, leaseMs: number, { answeredAt }: Span): void {
    const execution = this.#executions.get(idOf(lease))?.get(lease.owner);
    if (execution !== undefined) execution.leaseUntil = Math.max(execution.leaseUntil, answeredAt + leaseMs);
  }

  ended(lease: Lease, at: number): void {
    const execution = this.#executions.get(idOf(lease))?.get(lease.owner);
    if (execution !== undefined) execution.endedAt = at;
  }

  /** Before the truth is told: it may be replayed before that is confirmed. */
  offered(id: RecordId, fence: number, fingerprint: string, body: Buffer): void {
    const { scope, key } = id;
    const version = { scope, key, fence, fingerprint, body, expiresAt: undefined, wasRefused: false };
    this.#versions.set(nameIn(body), { ...version, bust: undefined });
  }

  confirmed(body: Buffer, expiresAt: number | undefined): void {
    const version = this.#versions.get(nameIn(body));
    if (version === undefined) return;
    version.expiresAt = expiresAt;
    version.wasRefused = expiresAt === undefined;
  }

  /** A version that could be busted now, if nobody has. */
  bustable(id: RecordId): { readonly fence: number; busted(by: number, span: Span): void } | undefined {
    const mine = [...this.#versions.values()].filter((version) => idOf(version) === idOf(id));
    const latest = mine.at(-1);
    if (latest?.expiresAt === undefined || mine.some(({ bust }) => bust && now() - bust.askedAt < 400)) {
      return undefined;
    }
    const askedAt = now();
    latest.bust = { askedAt, answeredAt: Number.POSITIVE_INFINITY, heardBy: new Map() };
    return {
      fence: latest.fence,
      busted: (by, { answeredAt }) => {
        this.counts.busts += 1;
        if (latest.bust === undefined) return;
        latest.bust.answeredAt = answeredAt;
        latest.bust.heardBy.set(by, Math.min(answeredAt, latest.bust.heardBy.get(by) ?? answeredAt));
      },
    };
  }

  heard(process: number, name: string, nameOf: (id: RecordId) => string): void {
    for (const version of this.#versions.values()) {
      if (version.bust === undefined || nameOf(version) !== name || version.bust.heardBy.has(process))
        continue;
      version.bust.heardBy.set(process, now());
    }
  }

  hears(process: number, isListening: boolean): void {
    if (isListening) this.#deafSince.delete(process);
    else if (!this.#deafSince.has(process)) this.#deafSince.set(process, now());
  }

  /** An answer of a layered store. */
  answered(
    process: number,
    request: ReserveRequest,
    answer: Reservation,
    { askedAt, answeredAt, fromTruth }: Span & { readonly fromTruth: boolean },
  ): void {
    if (fromTruth) {
      this.counts.truth += 1;
      return;
    }
    const trouble = this.#troubleWith(process, request, answer, { askedAt, answeredAt });
    if (answer.kind === "replay" || answer.kind === "inFlight") this.counts[answer.kind] += 1;
    if (trouble !== undefined) {
      this.violations.push(`process ${process}, ${idOf(request)} ${request.fingerprint}: ${trouble}`);
    }
  }

  /** What can only be told when everything is over. */
  finish(): void {
    for (const { expiresAt, seenUntil, body } of this.#seen) {
      const version = this.#versions.get(nameIn(body));
      if (version?.wasRefused)
        this.violations.push(`${nameIn(body)} was replayed, and the truth never had it`);
      if (version?.expiresAt !== undefined && version.expiresAt !== expiresAt) {
        this.violations.push(`${nameIn(body)} was replayed until ${expiresAt}, and not ${version.expiresAt}`);
      }
      if (seenUntil > 0 && expiresAt < now()) this.counts.expiries += 1;
    }
  }

  readonly #seen: { readonly body: Buffer; readonly expiresAt: number; readonly seenUntil: number }[] = [];

  #troubleWith(
    process: number,
    request: ReserveRequest,
    answer: Reservation,
    { askedAt, answeredAt }: Span,
  ): string | undefined {
    if (answer.kind === "inFlight") {
      const executions = [...(this.#executions.get(idOf(request))?.values() ?? [])];
      const isSo = executions.some(
        ({ fingerprint, begunAt, leaseUntil, endedAt }) =>
          fingerprint === request.fingerprint &&
          begunAt <= answeredAt &&
          endedAt >= askedAt &&
          leaseUntil + toleranceMs >= askedAt,
      );
      if (!isSo)
        return `in flight, and nothing was: asked at ${askedAt} ${JSON.stringify(executions.at(-1))}`;
      return answer.retryAfterMs > 0 ? undefined : `in flight for ${answer.retryAfterMs} ms`;
    }
    if (answer.kind !== "replay" || answer.response.kind !== "full") return `the front said ${answer.kind}`;
    const body = Buffer.from(answer.response.body);
    const version = this.#versions.get(nameIn(body));
    if (version === undefined || !version.body.equals(body)) return "a replay that nobody ever gave";
    if (idOf(version) !== idOf(request) || version.fingerprint !== request.fingerprint) {
      return `the answer of ${idOf(version)} ${version.fingerprint}`;
    }
    if (answer.expiresAt + toleranceMs <= askedAt) return `expired ${askedAt - answer.expiresAt} ms before`;
    this.#seen.push({ body, expiresAt: answer.expiresAt, seenUntil: answeredAt });
    const { bust } = version;
    if (bust === undefined) return undefined;
    const heardAt = bust.heardBy.get(process);
    if (heardAt !== undefined && heardAt < askedAt) return `busted, heard ${askedAt - heardAt} ms before`;
    const deafSince = this.#deafSince.get(process);
    const missedIt = deafSince !== undefined && deafSince < askedAt && bust.answeredAt < askedAt;
    return missedIt ? "busted while nobody listened" : undefined;
  }
}

function idOf({ scope, key }: RecordId): string {
  return `${scope}/${key}`;
}

/** Each answer begins with a number of its own. */
function nameIn(body: Buffer): string {
  return body.toString("latin1").split(" ", 1)[0] ?? "";
}
