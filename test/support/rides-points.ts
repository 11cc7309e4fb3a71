import type { Provider } from "../../examples/rocket-rides/provider/client.ts";
import type { Store } from "../../src/core/store.ts";

/** A moment on the path of one request, such as `transact 1 before`: what comes first, and how often by then. */
export type Point = string;

/** Called at each moment of a request, by its key. A request that is to stay there gets a promise that never ends. */
export type Pass = (key: string, point: Point) => Promise<never> | undefined;

/** A store that says when a request comes to it, when the work of a transaction is done, and when it has answered. */
export function storeWithPoints<Tx>(store: Store<Tx>, pass: Pass, ordinalOf: OrdinalOf): Store<Tx> {
  async function around<T>(verb: string, key: string, call: (name: string) => Promise<T>): Promise<T> {
    const name = `${verb} ${ordinalOf(key, verb)}`;
    await pass(key, `${name} before`);
    const answer = await call(name);
    await pass(key, `${name} after`);
    return answer;
  }
  const points: Pick<Store<Tx>, "reserve" | "advance" | "settle" | "transact"> = {
    reserve: (request) => around("reserve", request.key, () => store.reserve(request)),
    advance: (lease, advance) => around("advance", lease.key, () => store.advance(lease, advance)),
    settle: (lease, settlement) => around("settle", lease.key, () => store.settle(lease, settlement)),
    transact: (lease, work, commit) =>
      around("transact", lease.key, (name) => {
        if (store.transact === undefined) throw new Error(`the ${store.name} store has no transactions`);
        const watched = async (tx: Tx) => {
          const result = await work(tx);
          await pass(lease.key, `${name} uncommitted`);
          return result;
        };
        return store.transact(lease, watched, commit);
      }),
  };
  return new Proxy(store, {
    get(target, name) {
      if (Object.hasOwn(points, name)) return points[name as keyof typeof points];
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** How often this verb was called for this key, this time included. */
export type OrdinalOf = (key: string, verb: string) => number;

/** A provider that says when it is about to be called and when it has answered. */
export function providerWithPoints(provider: Provider, pass: Pass, currentKey: () => string): Provider {
  return {
    async charge(order, options) {
      const key = currentKey();
      await pass(key, "charge before");
      const charge = await provider.charge(order, options);
      await pass(key, "charge after");
      return charge;
    },
    find: (reference, options) => provider.find(reference, options),
  };
}
