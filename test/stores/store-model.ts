import fc from "fast-check";
import { expect } from "vitest";
import type { Progress } from "../../src/core/phase.ts";
import type { OnCrash, RecordId } from "../../src/core/record.ts";
import type {
  Advance,
  ClaimOptions,
  Expiry,
  Lease,
  ReserveMode,
  ReserveRequest,
  Resolution,
  Settlement,
  Store,
} from "../../src/core/store.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import { kept, unclaimed } from "./sqlite-support.ts";

/** Lets a store answer any sequence of calls as the memory store does, on the same clock. Each run has a store of its own. */
export async function assertAnswersAsMemoryDoes(
  open: (clock: () => number) => Promise<Store>,
  { numRuns }: { readonly numRuns: number },
): Promise<void> {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40 }), async (steps) => {
      const clock = manualClock();
      const model = memoryStore({ clock: clock.now });
      const store = await open(clock.now);
      try {
        const leases: Lease[] = [];
        for (const [index, next] of steps.entries()) {
          if (next.kind === "pass") {
            await clock.advance(next.ms);
            continue;
          }
          const expected = await perform(model, next, { leases, index });
          const answer = await perform(store, next, { leases, index });
          expect(answer, `step ${index}: ${JSON.stringify(next)}`).toEqual(expected);
          for (const granted of expected) if (isGrant(granted)) leases.push(granted.lease);
          for (const id of ids) {
            expect(await store.read(id)).toEqual(await model.read(id));
            expect(await trail(store, id)).toEqual(await trail(model, id));
          }
        }
      } finally {
        await store.close();
      }
    }),
    { numRuns },
  );
}

/** Few keys and short times, so that most steps meet the traces of earlier ones. */
const ids = [
  { scope: "a", key: "x" },
  { scope: "a", key: "y" },
  { scope: "b", key: "x" },
] as const;
const durations = [1, 10, 50, 100] as const;

type Asked = Omit<ReserveRequest, "owner" | "mode">;

type Step =
  | { readonly kind: "pass"; readonly ms: number }
  /**
   * All at once, as duplicates come. In one mode, because stores answer what need not be written before they write
   * anything, so that a duplicate may still see as pending what a worker beside it claims.
   */
  | { readonly kind: "reserve"; readonly mode: ReserveMode; readonly asked: readonly Asked[] }
  | { readonly kind: "settle"; readonly which: Which; readonly settlement: Settlement }
  | { readonly kind: "renew"; readonly which: readonly Which[]; readonly leaseMs: number }
  | { readonly kind: "advance"; readonly which: Which; readonly advance: Advance }
  | { readonly kind: "claimResumable"; readonly options: ClaimOptions }
  | { readonly kind: "claimUnknown"; readonly options: ClaimOptions }
  | {
      readonly kind: "resolve";
      readonly id: RecordId;
      readonly fence: number;
      readonly resolution: Resolution;
    }
  | { readonly kind: "sweep" }
  | { readonly kind: "reap"; readonly expiry: Expiry };

/** One of the leases that were granted so far, perhaps in the wrong hands or with another attempt's number. */
interface Which {
  readonly back: number;
  readonly forged: "owner" | "fence" | "no";
}

const duration = fc.constantFrom(...durations);

const asked: fc.Arbitrary<Asked> = fc
  .record({
    id: fc.constantFrom(...ids),
    fingerprint: fc.constantFrom("v1:first", "v1:first", "v1:other"),
    leaseMs: duration,
    retentionMs: duration,
    onCrash: fc.constantFrom<OnCrash>("reconcile", "resume", "retry"),
    reconcileAfterMs: duration,
    route: fc.constantFrom(undefined, "rides"),
    request: fc.constantFrom(undefined, kept, { ...kept, body: new Uint8Array() }),
  })
  .map(({ id, ...rest }) => ({ ...id, ...rest }));

const which: fc.Arbitrary<Which> = fc.record({
  back: fc.nat({ max: 4 }),
  forged: fc.constantFrom("no", "no", "no", "no", "owner", "fence"),
});

const progress: fc.Arbitrary<Progress> = fc.constantFrom<Progress>(
  [],
  [{ kind: "atomic", name: "first", result: "1" }],
  [{ kind: "effect", name: "second", state: "begun", keyed: false }],
);

const completion = fc.record({
  kind: fc.constant("complete" as const),
  retentionMs: duration,
  response: fc.oneof(
    fc.record({
      kind: fc.constant("full" as const),
      status: fc.integer({ min: 200, max: 599 }),
      headers: fc.array(fc.tuple(fc.string(), fc.string()), { maxLength: 2 }),
      body: fc.uint8Array({ maxLength: 20 }),
    }),
    fc.record({ kind: fc.constant("omitted" as const), status: fc.constant(201), bodyBytes: fc.nat() }),
  ),
});

const releasing = fc.oneof(
  fc.record({ kind: fc.constant("release" as const), reason: reason(), retentionMs: duration }),
  fc.record({
    kind: fc.constant("release" as const),
    reason: reason(),
    retentionMs: duration,
    resumeAfterMs: duration,
  }),
);

const settlement: fc.Arbitrary<Settlement> = fc.oneof(
  completion,
  releasing,
  fc.record({ kind: fc.constant("suspend" as const), reason: reason(), reconcileAfterMs: duration }),
);

const resolution: fc.Arbitrary<Resolution> = fc.oneof(
  completion,
  fc.tuple(releasing, progress).map(([release, known]) => ({ ...release, progress: known })),
  fc.record({ kind: fc.constant("escalate" as const), reason: reason() }),
);

const claimOptions: fc.Arbitrary<ClaimOptions> = fc.record({
  // Above the number of records: which of them come first is each store's own choice.
  limit: fc.constant(100),
  attemptsMax: fc.integer({ min: 1, max: 3 }),
  backoff: fc.record({ baseMs: duration, capMs: duration }),
});

/** libsql reads text only up to a NUL, which no reason has. */
function reason(): fc.Arbitrary<string> {
  return fc.string({ unit: "grapheme" }).map((text) => text.replaceAll("\0", ""));
}

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("reserve" as const),
      mode: fc.constantFrom<ReserveMode>("execute", "execute", "accept", "claim"),
      asked: fc.array(asked, { minLength: 1, maxLength: 3 }),
    }),
  },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("settle" as const), which, settlement }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("pass" as const), ms: duration }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("renew" as const),
      which: fc.array(which, { maxLength: 3 }),
      leaseMs: duration,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("advance" as const),
      which,
      advance: fc.record({
        progress,
        onCrash: fc.constantFrom<OnCrash>("reconcile", "resume", "retry"),
      }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom("claimResumable" as const, "claimUnknown" as const),
      options: claimOptions,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant("resolve" as const),
      id: fc.constantFrom(...ids),
      fence: fc.constantFrom(1, 1, 2, 3),
      resolution,
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: "sweep" } as const) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("reap" as const),
      expiry: fc.constantFrom<Expiry>("delete", "soft"),
    }),
  },
);

/** A limit above the number of records: which of them come first is each store's own choice. */
const limit = 100;

async function perform(
  store: Store,
  next: Exclude<Step, { kind: "pass" }>,
  past: { readonly leases: readonly Lease[]; readonly index: number },
): Promise<readonly unknown[]> {
  switch (next.kind) {
    case "reserve":
      return Promise.all(
        next.asked.map((request, nth) =>
          store.reserve({ ...request, mode: next.mode, owner: `owner-${past.index}-${nth}` }),
        ),
      );
    case "settle":
      return Promise.all(
        find(past.leases, [next.which]).map((lease) => store.settle(lease, next.settlement)),
      );
    case "renew":
      return store.renew(find(past.leases, next.which), next.leaseMs);
    case "sweep":
      return [await store.sweep({ limit, unclaimed })];
    case "advance":
      return Promise.all(find(past.leases, [next.which]).map((lease) => store.advance(lease, next.advance)));
    case "claimResumable": {
      const { claimed, gaveUp } = await store.claimResumable(next.options);
      return [gaveUp, ...inOrder(claimed, ({ record }) => record)];
    }
    case "claimUnknown":
      return inOrder(await store.claimUnknown(next.options), (record) => record);
    case "resolve":
      return [await store.resolve(next.id, next.fence, next.resolution, `operator-${past.index}`)];
    case "reap":
      return [await store.reap({ limit, expiry: next.expiry })];
    default:
      return next satisfies never;
  }
}

function find(leases: readonly Lease[], wanted: readonly Which[]): Lease[] {
  return wanted.flatMap(({ back, forged }) => {
    const lease = leases.at(-1 - back);
    if (lease === undefined) return [];
    if (forged === "owner") return [{ ...lease, owner: "somebody else" }];
    return forged === "fence" ? [{ ...lease, fence: lease.fence + 1 }] : [lease];
  });
}

function inOrder<T>(items: readonly T[], idOf: (item: T) => RecordId): readonly T[] {
  const place = (item: T) => `${idOf(item).scope} ${idOf(item).key}`;
  return items.toSorted((a, b) => place(a).localeCompare(place(b)));
}

/** Everything that the audit trail says of one record, but for the numbers that each store gives its entries. */
async function trail(store: Store, { scope, key }: RecordId): Promise<readonly object[]> {
  const entries = await store.audit({ scope, key, limit });
  return entries.map(({ id: _, ...entry }) => entry);
}

function isGrant(answer: unknown): answer is { readonly lease: Lease } {
  return typeof answer === "object" && answer !== null && "lease" in answer;
}
