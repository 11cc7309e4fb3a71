import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Fate } from "../../examples/rocket-rides/provider/server.ts";
import { freshDatabase } from "../support/database.ts";
import { checkBooks } from "../support/rides-books.ts";
import { bundleRides, type RidesPrograms } from "../support/rides-bundle.ts";
import { type Crash, Lane } from "../support/rides-lane.ts";
import type { BooksAddress } from "../support/rides-options.ts";
import type { Point } from "../support/rides-points.ts";

const killsPerPoint = 20;
const ridesPerKill = 4; // Starting a process costs more than everything else.
const lanesPerRun = 4; // Most of the time each of them waits for a lease to run out.
const missesMax = 100;
const unluckyLanes = 4;
const unluckyRidesPerLane = 5;
const testTimeoutMs = 600_000; // Many times what a run takes, for machines that have much else to do.

const folder = mkdtempSync(join(tmpdir(), "latchkey-rides-"));
const databases: Awaited<ReturnType<typeof freshDatabase>>[] = [];
const report: string[] = [];
let programs: RidesPrograms;

beforeAll(async () => {
  programs = await bundleRides(join(folder, "programs"));
});
afterAll(async () => {
  await Promise.all(databases.map((database) => database.drop()));
  rmSync(folder, { recursive: true, force: true });
  console.log(report.join("\n"));
});

const stores: Record<string, (name: string) => Promise<BooksAddress>> = {
  sqlite: async (name) => ({ kind: "sqlite", path: join(folder, `${name}.db`) }),
  postgres: async () => {
    const database = await freshDatabase();
    databases.push(database);
    return { kind: "postgres", url: database.url };
  },
};

const providers = {
  deduplicates: true,
  "charges twice if asked twice": false,
};

describe.each(Object.entries(stores))("on %s", (store, addressOf) => {
  /** Runs `work` in lanes with books of their own, and then looks at what is in the books. */
  async function inLanes(
    run: { readonly name: string; readonly lanes: number; readonly providerDeduplicates: boolean },
    work: (lane: Lane, index: number) => Promise<void>,
  ): Promise<void> {
    const { lanes, providerDeduplicates } = run;
    const names = Array.from({ length: lanes }, (_, index) => `${store}-${run.name}-${index}`);
    const outcomes = await Promise.allSettled(
      names.map(async (name, index) => {
        const books = await addressOf(name);
        const lane = await Lane.open({ name, programs, folder, books, providerDeduplicates });
        try {
          await work(lane, index);
          await checkBooks(lane);
        } finally {
          await lane.close();
        }
      }),
    );
    // All lanes have ended before the first failure is told, so that no process is left behind.
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  }

  describe.each(Object.entries(providers))("with a provider that %s", (provider, providerDeduplicates) => {
    const name = providerDeduplicates ? "keyed" : "unkeyed";

    it(
      "a ride survives kill -9 at every point: charged once, finished, its receipt sent once",
      async () => {
        const kills = new Map<Point, number>();
        let crashes: Crash[] | undefined;
        let processes = 0;
        let misses = 0;
        await inLanes({ name, lanes: lanesPerRun, providerDeduplicates }, async (lane) => {
          const recorded = await recordPoints(lane);
          const points = [...new Set([...recorded.paid, ...recorded.declined])];
          expect(points).toEqual(expect.arrayContaining([...expectedPoints({ providerDeduplicates })]));
          crashes ??= crashesFor(recorded);
          for (let crash = crashes.shift(); crash !== undefined; crash = crashes.shift()) {
            const rides = await lane.crash(crash);
            for (const [index, { key, status, killedAt }] of rides.entries()) {
              const point = crash.points[index] as Point;
              expect(status).toBe(crash.fate === "decline" ? 402 : 201);
              if (!killedAt.includes(point)) {
                // On a busy machine a request may be refused before it comes to its point: it does not count.
                misses += 1;
                if (misses > missesMax) throw new Error(`rides do not come to "${point}" any more`);
                crashes.push({ ...crash, points: [point] });
                continue;
              }
              kills.set(point, (kills.get(point) ?? 0) + 1);
              const { audit } = await lane.record(key);
              const changes = audit.map(({ from, to, by }) => (from === "unknown" ? `${to} by ${by}` : to));
              if (providerDeduplicates) {
                expect(changes, point).not.toContain("unknown");
              } else if (isChargeInDoubt(recorded.paid, point)) {
                expect(changes, point).toEqual(
                  expect.arrayContaining(["unknown", "failed_retryable by reconciler"]),
                );
              }
            }
          }
          processes += new Set(lane.stops().map(({ pid }) => pid)).size;
        });
        for (const point of expectedPoints({ providerDeduplicates })) {
          expect(kills.get(point), point).toBeGreaterThanOrEqual(killsPerPoint);
        }
        report.push(
          `${processes} processes killed on ${store}, with a provider that ${provider}; rides at each point:`,
        );
        for (const [point, count] of kills) report.push(`  ${String(count).padStart(4)} ${point}`);
      },
      testTimeoutMs,
    );

    it(
      "a ride survives questions to the store that never arrive, and answers that never come back",
      async () => {
        await inLanes({ name: `stalled-${name}`, lanes: 1, providerDeduplicates }, async (lane) => {
          const { paid, declined } = await recordPoints(lane);
          // A transaction may take as long as its handler may, so nobody gives up waiting for one.
          const stalls = (point: Point) => /^(reserve|advance|settle) /.test(point);
          const [answered, refused] = [paid.filter(stalls), declined.filter(stalls)];
          expect(answered.length + refused.length).toBeGreaterThanOrEqual(10);
          await lane.stall(answered, { fate: "answer" });
          await lane.stall(refused, { fate: "decline" });
        });
      },
      testTimeoutMs,
    );

    it(
      "a ride survives a provider that loses requests and answers, and two crashes on top",
      async () => {
        await inLanes(
          { name: `unlucky-${name}`, lanes: unluckyLanes, providerDeduplicates },
          async (lane, index) => {
            const random = seeded(index);
            const { paid } = await recordPoints(lane);
            await lane.provider.behave({ lateMs: 600 });
            for (let ride = 0; ride < unluckyRidesPerLane; ride += 1) {
              const fates = Array.from({ length: 1 + Math.floor(random() * 3) }, () =>
                pick(random, unluckyFates),
              );
              const killAt = Array.from({ length: Math.floor(random() * 3) }, () => pick(random, paid));
              await lane.book({ fates, killAt });
            }
          },
        );
      },
      testTimeoutMs,
    );
  });

  it(
    "a paused owner that wakes after a takeover cannot commit an atomic phase",
    async () => {
      const points = ["transact 1 before", "transact 2 before"];
      // Paused inside a transaction it keeps SQLite's write lock, or the ride that it has changed, and everybody waits.
      // A ride that it has only made is in nobody's way.
      if (store === "postgres") points.push("transact 1 uncommitted");
      await inLanes({ name: "paused", lanes: 1, providerDeduplicates: true }, async (lane) => {
        for (const point of points) {
          const { ride, late } = await lane.overtake(point, { until: point.replace(/\w+$/, "after") });
          expect(ride.status).toBe(201);
          // Whatever the client of the paused process was told, it is no ride of its own.
          if (late.kind === "answered" && late.status === 201) {
            expect(JSON.parse(late.text)).toEqual({ ride: ride.ride, charge: ride.charge });
          }
        }
        expect(lane.stops().map(({ point, signal }) => `${signal} ${point}`)).toEqual(
          points.map((point) => `SIGSTOP ${point}`),
        );
      });
    },
    testTimeoutMs,
  );
});

interface Recorded {
  readonly paid: readonly Point[];
  readonly declined: readonly Point[];
}

/** What a ride comes to, as a first run of it tells: a list that was written by hand would miss what is added later. */
async function recordPoints(lane: Lane): Promise<Recorded> {
  return {
    paid: await lane.recordPoints({ fate: "answer" }),
    declined: await lane.recordPoints({ fate: "decline" }),
  };
}

/** Every point of a paid ride, and what only a declined one comes to, as often as each has to be killed at. */
function crashesFor({ paid, declined }: Recorded): Crash[] {
  const onlyDeclined = declined.filter((point) => !paid.includes(point));
  const often = (points: readonly Point[]) => Array.from({ length: killsPerPoint }, () => points).flat();
  return [
    ...grouped(often(paid)).map((points) => ({ points, fate: "answer" as const })),
    ...grouped(often(onlyDeclined)).map((points) => ({ points, fate: "decline" as const })),
  ].map((crash, index) => ({ ...crash, clientStaysAway: index % 4 === 0 }));
}

/** Some points for each kill. Within a transaction nobody can be kept waiting, so such a point is the last of its group. */
function grouped(points: readonly Point[]): Point[][] {
  const groups = points.filter(isUncommitted).map((point) => [point]);
  for (const point of points.filter((each) => !isUncommitted(each))) {
    const open = groups.find((group) => group.length < ridesPerKill && !group.includes(point));
    if (open === undefined) groups.push([point]);
    else open.unshift(point);
  }
  return groups;
}

function isUncommitted(point: Point): boolean {
  return point.endsWith("uncommitted");
}

function expectedPoints({
  providerDeduplicates,
}: {
  readonly providerDeduplicates: boolean;
}): readonly Point[] {
  // A charge that must not be repeated is announced first, and that is one more write.
  const advances = providerDeduplicates ? ["advance 1"] : ["advance 1", "advance 2"];
  return [
    ...["reserve 1", "charge", ...advances, "settle 1"].flatMap((call) => [
      `${call} before`,
      `${call} after`,
    ]),
    ...["transact 1", "transact 2"].flatMap((call) => [
      `${call} before`,
      `${call} uncommitted`,
      `${call} after`,
    ]),
  ];
}

/** Between the moment when it is written down that the card will be charged, and the one when it is that it was. */
function isChargeInDoubt(points: readonly Point[], point: Point): boolean {
  const at = points.indexOf(point);
  return at >= points.indexOf("advance 1 after") && at <= points.indexOf("advance 2 before");
}

const unluckyFates: readonly Fate[] = ["answer", "decline", "lose-request", "lose-response", "answer-late"];

function pick<T>(random: () => number, choices: readonly T[]): T {
  return choices[Math.floor(random() * choices.length)] as T;
}

/** The same numbers every time (mulberry32), so that a failure can be had again. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
