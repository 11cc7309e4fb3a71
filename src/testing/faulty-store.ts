import { StoreError } from "../core/errors.ts";
import type { Lease, PhaseCommit, Store } from "../core/store.ts";
import type { Runtime } from "../engine/runtime.ts";

const verbs = [
  "reserve",
  "settle",
  "renew",
  "advance",
  "transact",
  "read",
  "exist",
  "sweep",
  "claimResumable",
  "claimUnknown",
  "resolve",
  "bust",
  "list",
  "audit",
  "reap",
  "forgetTenant",
  "unknownCounts",
  "readNotes",
  "writeNotes",
] as const;

type Verb = (typeof verbs)[number];

/** What happens to one call: it works, it fails before or after it took effect, or it or its answer takes its time. */
export type Fault =
  | { readonly kind: "none" }
  | { readonly kind: "failBefore" }
  /** The store did it, and the answer was lost: what makes distributed systems hard. */
  | { readonly kind: "failAfter" }
  | { readonly kind: "delay"; readonly ms: number }
  /** The store did it at once, and the answer takes its time. */
  | { readonly kind: "late"; readonly ms: number };

export interface FaultyStore extends Store {
  /** How often each verb was called. */
  readonly calls: Readonly<Record<Verb, number>>;
}

/** Wraps a store so that `choose` decides the fate of each call. */
export function faultyStore(options: {
  readonly store: Store;
  readonly runtime: Runtime;
  readonly choose: (verb: Verb) => Fault;
}): FaultyStore {
  const { store, runtime } = options;
  const calls = Object.fromEntries(verbs.map((verb) => [verb, 0])) as Record<Verb, number>;

  async function through<T>(verb: Verb, call: () => Promise<T>): Promise<T> {
    calls[verb] += 1;
    const fault = options.choose(verb);
    switch (fault.kind) {
      case "none":
        return call();
      case "failBefore":
        throw new StoreError(`a fault was injected before ${verb}`);
      case "failAfter":
        await call();
        throw new StoreError(`a fault was injected after ${verb}`);
      case "delay":
        await new Promise<void>((resolve) => void runtime.setTimer(resolve, fault.ms));
        return call();
      case "late": {
        const answer = await call();
        await new Promise<void>((resolve) => void runtime.setTimer(resolve, fault.ms));
        return answer;
      }
      default:
        return fault satisfies never;
    }
  }

  // Binding loses the type of a generic method.
  const transact = store.transact?.bind(store) as Store["transact"];
  return {
    name: `faulty ${store.name}`,
    capabilities: store.capabilities,
    calls,
    reserve: (request) => through("reserve", () => store.reserve(request)),
    settle: (lease, settlement) => through("settle", () => store.settle(lease, settlement)),
    renew: (leases, leaseMs) => through("renew", () => store.renew(leases, leaseMs)),
    advance: (lease, advance) => through("advance", () => store.advance(lease, advance)),
    ...(transact === undefined
      ? {}
      : {
          transact: <T>(
            lease: Lease,
            work: (tx: unknown) => T | Promise<T>,
            commit: (result: T) => PhaseCommit,
          ) => through("transact", () => transact(lease, work, commit)),
        }),
    ...(store.outbox === undefined ? {} : { outbox: store.outbox }),
    read: (id) => through("read", () => store.read(id)),
    sweep: (request) => through("sweep", () => store.sweep(request)),
    claimResumable: (options) => through("claimResumable", () => store.claimResumable(options)),
    claimUnknown: (options) => through("claimUnknown", () => store.claimUnknown(options)),
    resolve: (id, fence, resolution, by) =>
      through("resolve", () => store.resolve(id, fence, resolution, by)),
    bust: (id, bust) => through("bust", () => store.bust(id, bust)),
    list: (query) => through("list", () => store.list(query)),
    audit: (query) => through("audit", () => store.audit(query)),
    reap: (request) => through("reap", () => store.reap(request)),
    forgetTenant: (options) => through("forgetTenant", () => store.forgetTenant(options)),
    unknownCounts: () => through("unknownCounts", () => store.unknownCounts()),
    notes: {
      read: (names) => through("readNotes", () => store.notes.read(names)),
      write: (writes) => through("writeNotes", () => store.notes.write(writes)),
    },
    ...(store.exist === undefined
      ? {}
      : { exist: (ids) => through("exist", () => store.exist?.(ids) ?? Promise.resolve([])) }),
    ...(store.watch === undefined ? {} : { watch: store.watch.bind(store) }),
    ...(store.onOwnershipLost === undefined ? {} : { onOwnershipLost: store.onOwnershipLost.bind(store) }),
    ...(store.onBusted === undefined ? {} : { onBusted: store.onBusted.bind(store) }),
    ...(store.bustGeneration === undefined ? {} : { bustGeneration: store.bustGeneration.bind(store) }),
    close: () => store.close(),
  };
}
