import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import type { RedisServer } from "../../support/redis-server.ts";

export type Random = () => number;

interface Remembered {
  readonly name: string;
  readonly value: Buffer;
}

/** What it has done, and how often. */
export type Deeds = Record<string, number>;

/**
 * Does to the front what no front should do: loses, damages, moves, swaps, keeps and brings back what was written to it, does
 * not answer, and dies. `deafen` ends the connections by which processes hear of busts.
 */
export async function hostileHand(options: {
  readonly server: RedisServer;
  readonly random: Random;
  readonly deafen: () => Promise<unknown>;
  readonly isOver: () => boolean;
}): Promise<Deeds> {
  const { server, random, deafen } = options;
  const redis = new Redis(server.url, {
    commandTimeout: 500,
    maxRetriesPerRequest: 1,
    retryStrategy: () => 20,
  });
  redis.on("error", () => {});
  const remembered: Remembered[] = [];
  const seen = new Set<string>();
  const deeds: Deeds = {};

  const any = <T>(items: readonly T[]): T | undefined => items[Math.floor(random() * items.length)];
  /** Those that came last are the ones that somebody is going to ask for. */
  const names = async () => {
    for (const name of await redis.keys("*")) seen.add(name);
    return [...seen].slice(-24);
  };
  const value = async (name: string) => (await redis.getBuffer(name)) ?? Buffer.alloc(0);

  const write = (entries: readonly Remembered[]) =>
    Promise.all(entries.map(({ name, value }) => redis.set(name, value)));

  /** Changes one entry to what `change` makes of it. */
  const damage = async (change: (bytes: Buffer) => Buffer) => {
    const name = any(await names());
    if (name !== undefined) await redis.set(name, change(await value(name)), "KEEPTTL");
  };

  const acts: Readonly<Record<string, readonly [weight: number, act: () => Promise<unknown>]>> = {
    remember: [
      40,
      async () => {
        const all = await names();
        const entries = await Promise.all(all.map(async (name) => ({ name, value: await value(name) })));
        remembered.push(...entries.filter((entry) => entry.value.length > 0));
        remembered.splice(0, remembered.length - 150);
      },
    ],
    "bring back": [
      30,
      async () => {
        await write(remembered.filter(() => random() < 0.3));
      },
    ],
    "bring back the latest": [
      30,
      async () => {
        await write(remembered.slice(-60));
      },
    ],
    "put under another name": [
      15,
      async () => {
        const chosen = (await names()).filter(() => random() < 0.3);
        await write(chosen.map((name) => ({ name, value: any(remembered)?.value ?? Buffer.alloc(0) })));
      },
    ],
    swap: [
      15,
      async () => {
        const all = await names();
        const [one, other] = [any(all), any(all)];
        if (one === undefined || other === undefined) return;
        const [first, second] = [await value(one), await value(other)];
        await redis.set(one, second, "KEEPTTL");
        await redis.set(other, first, "KEEPTTL");
      },
    ],
    "flip a bit": [
      15,
      () =>
        damage((bytes) => {
          const at = Math.floor(random() * bytes.length);
          bytes[at] = (bytes[at] ?? 0) ^ (1 << Math.floor(random() * 8));
          return bytes;
        }),
    ],
    truncate: [5, () => damage((bytes) => bytes.subarray(0, Math.floor(random() * bytes.length)))],
    lengthen: [5, () => damage((bytes) => Buffer.concat([bytes, Buffer.from(" and more")]))],
    "never expire": [
      20,
      async () => {
        await Promise.all((await names()).map((name) => redis.persist(name)));
      },
    ],
    delete: [
      10,
      async () => {
        const name = any(await names());
        if (name !== undefined) await redis.del(name);
      },
    ],
    "another type": [
      2,
      async () => {
        const name = any(await names());
        if (name !== undefined) await redis.multi().del(name).lpush(name, "no text").exec();
      },
    ],
    flush: [2, () => redis.flushall()],
    pause: [2, () => redis.call("CLIENT", "PAUSE", String(Math.floor(5 + random() * 60)), "ALL")],
    cut: [2, () => redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")],
    save: [4, () => redis.save()],
    "kill, and start with what was saved": [
      0.6,
      async () => {
        await server.kill();
        await sleep(random() * 100);
        await server.restart();
      },
    ],
    deafen: [2, deafen],
  };
  const all = Object.values(acts).reduce((sum, [weight]) => sum + weight, 0);

  while (!options.isOver()) {
    let left = random() * all;
    const chosen = Object.entries(acts).find(([, [weight]]) => {
      left -= weight;
      return left < 0;
    });
    if (chosen === undefined) continue;
    const [name, [, act]] = chosen;
    // It may be paused, or dead: then it does nothing.
    await act().then(
      () => {
        deeds[name] = (deeds[name] ?? 0) + 1;
      },
      () => {},
    );
    await sleep(random() * 10);
  }
  redis.disconnect();
  return deeds;
}
