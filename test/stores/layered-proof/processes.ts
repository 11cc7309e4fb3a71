import type pg from "pg";
import type { Lease, ReserveRequest, Store } from "../../../src/core/store.ts";
import { systemRuntime } from "../../../src/engine/runtime.ts";
import { layeredStore, type RedisClient } from "../../../src/stores/layered/store.ts";
import { postgresStore } from "../../../src/stores/postgres/store.ts";
import { faultyStore } from "../../../src/testing/index.ts";
import { type Ledger, now, type Span } from "./ledger.ts";

/** One process of a service: a layered store whose every answer is entered in the ledger. */
export interface Process {
  readonly number: number;
  readonly store: Store;
  reserve(request: ReserveRequest): Promise<Lease | undefined>;
  settle(lease: Lease, fingerprint: string, outcome: Outcome): Promise<void>;
}

export type Outcome =
  | {
      readonly kind: "complete";
      readonly body: Buffer;
      readonly retentionMs: number;
      readonly inPhase: boolean;
    }
  | { readonly kind: "release" }
  | { readonly kind: "suspend" };

export function startProcess(number: number, pool: pg.Pool, client: RedisClient, ledger: Ledger): Process {
  const askedTruth = new Set<string>();
  const plain = faultyStore({
    store: postgresStore(pool, { listen: true }) as Store,
    runtime: systemRuntime,
    choose: () => ({ kind: "none" }),
  });
  const { reserve, settle, transact } = plain;
  const truth: Store = Object.assign(plain, {
    reserve(request: ReserveRequest) {
      askedTruth.add(request.owner);
      return reserve(request);
    },
    async settle(...args: Parameters<Store["settle"]>) {
      const answer = await settle(...args);
      ledger.ended(args[0], now());
      return answer;
    },
    async transact(...args: Parameters<NonNullable<Store["transact"]>>) {
      const answer = await transact?.(...args);
      ledger.ended(args[0], now());
      return answer;
    },
  }) as Store;
  // Patient, because on a busy machine nothing else would be asked than the truth.
  const store = layeredStore(truth, client, { frontTimeoutMs: 100 });
  // After the layered store itself, so that what is heard here was heard there.
  const nameOf = store.onBusted?.({
    listening: () => ledger.hears(number, true),
    interrupted: () => ledger.hears(number, false),
    busted: (name) => nameOf && ledger.heard(number, name, nameOf),
  });

  return {
    number,
    store,
    async reserve(request) {
      const { span, answer } = await timed(() => store.reserve(request));
      const fromTruth = askedTruth.delete(request.owner);
      ledger.answered(number, request, answer, { ...span, fromTruth });
      if (answer.kind !== "execute") return undefined;
      ledger.begun(request, answer.lease, span);
      return answer.lease;
    },
    async settle(lease, fingerprint, outcome) {
      if (outcome.kind !== "complete") {
        await store.settle(lease, settlements[outcome.kind]);
        return;
      }
      const { body, retentionMs, inPhase } = outcome;
      const response = { kind: "full", status: 201, headers: [["x-n", "1"]], body } as const;
      const completion = { kind: "complete", response, retentionMs } as const;
      ledger.offered(lease, lease.fence, fingerprint, body);
      if (inPhase) {
        const committed = { progress: [], onCrash: "retry", messages: [], response: completion } as const;
        const answer = await store.transact?.(
          lease,
          () => 1,
          () => committed,
        );
        ledger.confirmed(body, answer?.kind === "committed" ? answer.expiresAt : undefined);
      } else {
        const answer = await store.settle(lease, completion);
        ledger.confirmed(body, answer.kind === "settled" ? answer.expiresAt : undefined);
      }
    },
  };
}

const settlements = {
  release: { kind: "release", reason: "not done", retentionMs: 60_000 },
  suspend: { kind: "suspend", reason: "no answer", reconcileAfterMs: 0 },
} as const;

export async function timed<T>(ask: () => Promise<T>): Promise<{ readonly span: Span; readonly answer: T }> {
  const askedAt = now();
  const answer = await ask();
  return { span: { askedAt, answeredAt: now() }, answer };
}
