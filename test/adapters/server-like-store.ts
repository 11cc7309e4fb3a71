import { type Runtime, systemRuntime } from "../../src/engine/runtime.ts";
import type { Store, StoredResponse } from "../../src/index.ts";
import { type Fault, type FaultyStore, faultyStore } from "../../src/testing/index.ts";

/** A store that behaves as one on a server would, and fails when it is told to. */
export function serverLikeStore(faults: Faults, store: Store): FaultyStore {
  return faultyStore({
    store: asFromAServer(store),
    runtime: faults.runtime,
    choose: (verb) => faults.choose(verb),
  });
}

/**
 * Answers a turn of the event loop later, and hands stored bodies out as database drivers do: as a window onto a larger
 * buffer in which other people's data stands left and right of it.
 */
function asFromAServer(store: Store): Store {
  const windowOf = (response: StoredResponse): StoredResponse => {
    if (response.kind === "omitted") return response;
    const packet = Buffer.concat([secret, response.body, secret]);
    return { ...response, body: packet.subarray(secret.length, packet.length - secret.length) };
  };
  return {
    name: store.name,
    capabilities: store.capabilities,
    async reserve(request) {
      await turn();
      const answer = await store.reserve(request);
      return answer.kind === "replay" ? { ...answer, response: windowOf(answer.response) } : answer;
    },
    async settle(lease, settlement) {
      await turn();
      return store.settle(lease, settlement);
    },
    async read(id) {
      await turn();
      const { record, now } = await store.read(id);
      if (record?.state !== "completed") return { record, now };
      return { record: { ...record, response: windowOf(record.response) }, now };
    },
    renew: (leases, leaseMs) => store.renew(leases, leaseMs),
    advance: (lease, advance) => store.advance(lease, advance),
    sweep: (options) => store.sweep(options),
    reap: (options) => store.reap(options),
    claimResumable: (options) => store.claimResumable(options),
    claimUnknown: (options) => store.claimUnknown(options),
    resolve: (...question) => store.resolve(...question),
    bust: (id, bust) => store.bust(id, bust),
    list: (query) => store.list(query),
    audit: (query) => store.audit(query),
    forgetTenant: (options) => store.forgetTenant(options),
    unknownCounts: () => store.unknownCounts(),
    notes: store.notes,
    ...(store.transact === undefined ? {} : { transact: store.transact.bind(store) }),
    ...(store.outbox === undefined ? {} : { outbox: store.outbox }),
    ...(store.watch === undefined ? {} : { watch: store.watch.bind(store) }),
    ...(store.onBusted === undefined ? {} : { onBusted: store.onBusted.bind(store) }),
    close: () => store.close(),
  };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

const secret = Buffer.from("another tenant's secret");

const works = (): Fault => ({ kind: "none" });

/** The fault of a call that does not come back before the store is repaired. */
export const hangs: Fault = { kind: "delay", ms: Number.POSITIVE_INFINITY };

/** What becomes of each call of a store. */
export class Faults {
  choose: (verb: string) => Fault = works;
  readonly #hanging: (() => void)[] = [];
  readonly runtime: Runtime = {
    ...systemRuntime,
    setTimer: (run, ms) => {
      if (Number.isFinite(ms)) return systemRuntime.setTimer(run, ms);
      this.#hanging.push(run);
      return () => {};
    },
  };

  /** Lets calls through again, those that hang first. */
  repair(): void {
    this.choose = works;
    for (const run of this.#hanging.splice(0)) run();
  }
}
