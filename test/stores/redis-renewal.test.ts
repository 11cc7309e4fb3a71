import { expect, it } from "vitest";
import { StoreError } from "../../src/core/errors.ts";
import { Names } from "../../src/stores/redis/names.ts";
import { redisStore } from "../../src/stores/redis/store.ts";
import { startRedisCluster } from "../support/redis-server.ts";
import { request } from "../support/reserve-request.ts";
import { leaseOf } from "./postgres-support.ts";
import { ioredisCluster } from "./redis-support.ts";

it("a node that is down costs no lease on another node its renewal, and its own are not known", async () => {
  const cluster = await startRedisCluster({ args: ["--cluster-replica-no-failover", "yes"] });
  const { client, end } = ioredisCluster(cluster);
  const store = redisStore(client, { warn: () => {} });
  try {
    const names = new Names({ keyPrefix: "", prefix: "latchkey", buckets: 64 });
    const leases = await Promise.all(Array.from({ length: 30 }, () => leaseOf(store, request())));
    const [first] = leases;
    if (first === undefined) throw new Error("nothing was reserved");
    await cluster.killPrimaryOf(names.keyOf(first));
    const answers = await store.renew(leases, 60_000);
    expect(answers[0]).toBe("unknown");
    expect(new Set(answers)).toEqual(new Set(["unknown", "held"]));
    await expect(store.renew([first], 60_000)).rejects.toThrow(StoreError);
  } finally {
    await store.close();
    await end();
    await cluster.stop();
  }
}, 60_000);
