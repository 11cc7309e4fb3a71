import { AsyncLocalStorage } from "node:async_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import type { Store } from "../../src/core/store.ts";
import { createLatchkey, currentOperation, type LatchkeyEvent } from "../../src/index.ts";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { useDatabase } from "../stores/postgres-support.ts";
import { useFolder } from "../stores/sqlite-support.ts";

const database = useDatabase();
const place = useFolder();
const stores: Readonly<Record<string, () => Store<never>>> = {
  SQLite: () => sqliteStore(place.path) as Store<never>,
  Postgres: () => postgresStore(database.pool({ max: 4 })) as Store<never>,
};

const caller = new AsyncLocalStorage<string>();
const crowd = 64;

/** The answers of a crowd come together, and are told from one place, in the context of one of those who asked. */
describe.each(Object.keys(stores))("each of a crowd, on %s", (name) => {
  it.each([
    ["nobody", false],
    ["somebody", true],
  ])("has its own context in its handler and behind every await, while %s listens", async (_who, isHeard) => {
    const heard: { readonly of: string; readonly type: string; readonly by: string | undefined }[] = [];
    const onEvent = (event: LatchkeyEvent) => {
      if ("key" in event) heard.push({ of: event.key, type: event.type, by: caller.getStore() });
    };
    const store = stores[name]?.() as Store<never>;
    const latchkey = createLatchkey({ store, tenant: "single", ...(isHeard ? { onEvent } : {}) });
    const executions = new Map<string, number>();
    const names = Array.from({ length: crowd }, (_, index) => `${isHeard ? "heard" : "unheard"} ${index}`);

    const oneOf = async (own: string, index: number) => {
      const run = () =>
        latchkey.run({ tenant: "acme", key: own }, async () => {
          executions.set(own, (executions.get(own) ?? 0) + 1);
          const seen = [caller.getStore()];
          // Some end within the turn, so that their outcomes meet the reservations of others.
          if (index % 3 > 0) await sleep(index % 3);
          return { seen: [...seen, caller.getStore()], key: currentOperation().key };
        });
      const first = await run();
      const afterFirst = caller.getStore();
      const again = await run();
      return { first, afterFirst, again, afterAgain: caller.getStore() };
    };
    const told = await Promise.all(names.map((own, index) => caller.run(own, () => oneOf(own, index))));

    for (const [index, own] of names.entries()) {
      const result = { seen: [own, own], key: own };
      expect(told[index]).toEqual({ first: result, afterFirst: own, again: result, afterAgain: own });
    }
    expect([...executions.values()]).toEqual(names.map(() => 1));
    const types = heard.map(({ type }) => type);
    expect(types.filter((type) => type === "settled")).toHaveLength(isHeard ? crowd : 0);
    expect(types.filter((type) => type === "reserved")).toHaveLength(isHeard ? 2 * crowd : 0);
    expect(heard.filter(({ of, by }) => by !== of)).toEqual([]);
    expect(caller.getStore()).toBeUndefined();
    await latchkey.close();
    await store.close();
  });
});
