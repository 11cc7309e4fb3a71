import { setImmediate as turn } from "node:timers/promises";
import { createLatchkey, type RoutePolicy, type Store } from "../../../src/index.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import { type Attack, hour, minute, payments, uuidV7 } from "./attack.ts";

/** A store that looks first and writes then, as is done where nobody thinks of two servers. */
function checkThenAct(store: Store): Store {
  const { reserve, read } = store;
  let writes = 0;
  return Object.assign(store, {
    reserve: (async (request) => {
      const { record } = await read.call(store, request);
      await turn();
      // Whoever saw nothing writes, over whatever is there by now.
      if (record === undefined) return reserve.call(store, { ...request, key: `${request.key}-${++writes}` });
      return reserve.call(store, request);
    }) satisfies Store["reserve"],
  });
}

/** Ten servers get the same request at the same time. Damage: executions beyond the first. */
export const firstWriterRace: Attack = async (isGuarded) => {
  const store = isGuarded ? memoryStore() : checkThenAct(memoryStore());
  const servers = Array.from({ length: 10 }, () => createLatchkey({ store, tenant: "single" }));
  let paid = 0;
  await Promise.allSettled(
    servers.map((server) =>
      server.run({ tenant: "acme", key: "k" }, async () => {
        paid += 1;
        await turn();
      }),
    ),
  );
  for (const server of servers) server.engine.close();
  return paid - 1;
};

/** Two tenants make up the same key. Damage: answers that were somebody else's. */
export const crossTenantCollision: Attack = async (isGuarded) => {
  const api = payments({ latchkey: isGuarded ? {} : { tenant: "single" } });
  await api.pay("k", { tenant: "victim" });
  const { tenant } = (await (await api.pay("k", { tenant: "attacker" })).json()) as { tenant: string };
  return tenant === "attacker" ? 0 : 1;
};

/** A key comes back with another amount. Damage: answers that say it was paid, when something else was. */
export const parameterMismatch: Attack = async (isGuarded) => {
  const route: RoutePolicy<Request> = isGuarded ? {} : { fingerprint: () => "all the same" };
  const api = payments({ route });
  await api.pay("k", { body: { amount: 10 } });
  const bodies = [{ amount: 20 }, { amount: 10, to: "mallory" }, [{ amount: 10 }], { amount: "10" }];
  let damage = 0;
  for (const body of bodies) if ((await api.pay("k", { body })).ok) damage += 1;
  return damage + api.paid() - 1;
};

/** A recorded request is sent again when its key has expired. Damage: executions beyond the first. */
export const replayAfterTtl: Attack = async (isGuarded) => {
  const api = payments({ route: { retentionMs: hour, lateArrivals: isGuarded ? "reject" : "allow" } });
  const key = uuidV7(api.clock.now());
  await api.pay(key);
  for (let elapsed = 0; elapsed < 3 * hour; elapsed += 10 * minute) {
    await api.clock.advance(10 * minute);
    await api.latchkey.reap();
    await api.pay(key);
  }
  return api.paid() - 1;
};

/** The first answer is a 500, and the bug is mended. Damage: retries that are still told of it. */
export const errorCaching: Attack = async (isGuarded) => {
  let isBroken = true;
  const api = payments({
    route: { onServerError: isGuarded ? "retry" : "store" },
    handler: () => new Response(null, { status: isBroken ? 500 : 201 }),
  });
  await api.pay("k");
  isBroken = false;
  let damage = 0;
  for (let retries = 0; retries < 3; retries += 1) if ((await api.pay("k")).status === 500) damage += 1;
  return damage;
};

/** A client goes on retrying for six hours. Damage: executions beyond the first, and answers without their end. */
export const ttlRace: Attack = async (isGuarded) => {
  const api = payments(isGuarded ? {} : { route: { retentionMs: hour } });
  let damage = 0;
  for (let elapsed = 0; elapsed < 6 * hour; elapsed += 30 * minute) {
    const { headers } = await api.pay("k");
    // A client can see until when its retries are safe.
    if (!(Date.parse(headers.get("idempotency-expires") ?? "") > api.clock.now())) damage += 1;
    await api.clock.advance(30 * minute);
    await api.latchkey.reap();
  }
  return damage + api.paid() - 1;
};
