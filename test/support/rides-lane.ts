import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Fate } from "../../examples/rocket-rides/provider/server.ts";
import type { RidesPrograms } from "./rides-bundle.ts";
import { type BooksAddress, type BooksState, leaseMs, type RecordStory, type Stop } from "./rides-options.ts";
import type { Point } from "./rides-points.ts";
import {
  type BookAnswer,
  type ProviderProcess,
  type RidesProcess,
  startProvider,
  startRides,
} from "./rides-processes.ts";

export interface LaneOptions {
  readonly name: string;
  readonly programs: RidesPrograms;
  readonly folder: string;
  readonly books: BooksAddress;
  readonly providerDeduplicates: boolean;
}

/** One ride that was booked until it had a final answer. */
export interface BookedRide {
  readonly key: string;
  readonly status: 201 | 402;
  readonly ride: string;
  readonly charge: string | undefined;
  /** Where the processes that executed it were killed. */
  readonly killedAt: readonly Point[];
}

export interface Plan {
  /** Where to kill the process that executes the ride, and the one after it, and so on. */
  readonly killAt: readonly Point[];
  /** What the provider does with the requests for a charge, one after the other. */
  readonly fates: readonly Fate[];
}

/** Rides that one kill interrupts, each at a point of its own. */
export interface Crash {
  readonly points: readonly Point[];
  /** What becomes of every request for a charge. */
  readonly fate: Fate;
  /** Leaves the rides to the workers after the kill, and only comes back for the answers. */
  readonly clientStaysAway: boolean;
}

const settleMsMax = 60_000; // Hundreds of times what it takes: a busy machine is no reason to fail.
const retryMs = 80; // A client that asks more often would take the time from those who do the work.
const endMsMax = 5_000; // A process that was killed is gone within milliseconds.
const attemptsMax = 5; // On a busy machine a request may be refused without any crash.

/** A service with its provider and its books, of which one process serves and another one stands by to follow it. */
export class Lane {
  readonly rides: BookedRide[] = [];
  readonly provider: ProviderProcess;
  readonly #options: LaneOptions;
  readonly #start: () => Promise<RidesProcess>;
  #serving: RidesProcess;
  #standby: Promise<RidesProcess>;
  #booked = 0;

  static async open(options: LaneOptions): Promise<Lane> {
    const provider = await startProvider(options.programs, {
      ledger: join(options.folder, `${options.name}.jsonl`),
      behaviour: { deduplicates: options.providerDeduplicates },
    });
    const start = (isFirst = false) =>
      startRides(options.programs, {
        isFirst,
        books: options.books,
        providerUrl: provider.url,
        providerDeduplicates: options.providerDeduplicates,
        stops: join(options.folder, `${options.name}.stops`),
      });
    return new Lane(options, provider, start, await start(true));
  }

  private constructor(
    options: LaneOptions,
    provider: ProviderProcess,
    start: () => Promise<RidesProcess>,
    serving: RidesProcess,
  ) {
    this.#options = options;
    this.provider = provider;
    this.#start = start;
    this.#serving = serving;
    this.#serving.work();
    this.#standby = this.#startStandby();
  }

  /** Every point at which a process has stopped itself, as that process wrote it down. */
  stops(): readonly Stop[] {
    const { folder, name } = this.#options;
    const file = join(folder, `${name}.stops`);
    if (!existsSync(file)) return [];
    const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
    return lines.map((line) => JSON.parse(line) as Stop);
  }

  /** Where a ride was killed. One that was parked until the engine gave it up was not at its point any more. */
  #stopsOf(key: string): readonly Point[] {
    return this.stops()
      .filter((stop) => stop.key === key && stop.signal === "SIGKILL" && stop.heldMs < leaseMs)
      .map(({ point }) => point);
  }

  #newKey(): string {
    this.#booked += 1;
    return `${this.#options.name}-${this.#booked}`;
  }

  /** What became of a ride's record. */
  record(key: string): Promise<RecordStory> {
    return this.#serving.record(key);
  }

  books(): Promise<BooksState> {
    return this.#serving.books();
  }

  /** The points that a ride comes to when nothing goes wrong, as a first run of it tells. */
  async recordPoints({ fate }: Pick<Crash, "fate">): Promise<readonly Point[]> {
    for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
      const key = this.#newKey();
      await this.provider.behave({ next: [fate] });
      const { points, answer } = await this.#serving.watch(key);
      await this.#finish(key);
      if (isFinal(answer)) return points;
    }
    throw new Error(`of ${attemptsMax} rides without any crash none was finished by its first request`);
  }

  /** Books a ride, with everything that the plan says going wrong, and then until it is final. */
  async book({ killAt, fates }: Plan): Promise<BookedRide> {
    const key = this.#newKey();
    await this.provider.behave({ next: fates });
    for (const point of killAt) await this.#kill(key, point);
    const ride = await this.#finish(key);
    await this.provider.behave({ next: [] });
    return ride;
  }

  /**
   * Books a ride for each point, keeps all of them there but the last, and kills the process when that one comes to its
   * point; then until all of them are final.
   */
  async crash({ points, fate, clientStaysAway }: Crash): Promise<readonly BookedRide[]> {
    const rides = points.map((point) => ({ key: this.#newKey(), point }));
    await this.provider.behave({ always: fate });
    const victim = this.#serving;
    // All at once: whoever is kept waiting for too long is given up by the engine, and is not at its point any more.
    const parking = await Promise.all(rides.slice(0, -1).map(({ key, point }) => victim.park(key, point)));
    const isAnyParked = parking.includes("parked");
    for (const { key, point } of rides.slice(-1)) {
      const answer = await victim.book(key, { stopAt: point });
      // It was refused before it came to its point, which is no reason to spare the others.
      if (answer.kind === "answered" && isAnyParked) victim.kill();
      if (answer.kind === "lost" || isAnyParked) await this.#replace(victim);
    }
    if (clientStaysAway) await Promise.all(rides.map(({ key }) => this.#untilWorkersFinish(key)));
    const finished = await Promise.all(rides.map(({ key }) => this.#finish(key)));
    await this.provider.behave({ always: "answer" });
    return finished;
  }

  /**
   * Books a ride for each point and keeps the request there for good, in a process that lives on: whoever waits for the
   * store never hears of it. Then until all of them are final.
   */
  async stall(points: readonly Point[], { fate }: Pick<Crash, "fate">): Promise<void> {
    await this.provider.behave({ always: fate });
    await Promise.all(points.map((point) => this.#stallAt(point)));
    await this.provider.behave({ always: "answer" });
  }

  async #stallAt(point: Point): Promise<void> {
    for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
      const key = this.#newKey();
      const parked = await this.#serving.park(key, point);
      await this.#finish(key);
      if (parked === "parked") return;
    }
    throw new Error(`of ${attemptsMax} rides none came to "${point}"`);
  }

  /**
   * Stops the process that executes a ride, without killing it, until another one has finished the ride; then lets it
   * go on until the store has answered it. Answers with what its client was told in the end.
   */
  async overtake(
    point: Point,
    options: { readonly until: Point },
  ): Promise<{ readonly ride: BookedRide; readonly late: BookAnswer }> {
    const key = this.#newKey();
    const paused = this.#serving;
    const answer = paused.book(key, { stopAt: point, how: "SIGSTOP" });
    try {
      while (!this.stops().some((stop) => stop.key === key)) await delay(retryMs);
      await this.#handOver();
      const ride = await this.#finish(key);
      paused.goOn();
      await paused.came(options.until);
      return { ride, late: await answer };
    } finally {
      await paused.stop();
    }
  }

  async close(): Promise<void> {
    const standby = await this.#standby.catch(() => undefined);
    await Promise.all([this.#serving.stop(), standby?.stop()]);
    await this.provider.stop();
  }

  /** Sends the request until it kills the process, or is answered because the ride has been finished meanwhile. */
  async #kill(key: string, point: Point): Promise<void> {
    for (const until = Date.now() + settleMsMax; Date.now() < until; await delay(retryMs)) {
      const victim = this.#serving;
      const answer = await victim.book(key, { stopAt: point });
      if (answer.kind === "lost") return this.#replace(victim);
      if (answer.status !== inFlightStatus) return;
    }
    throw new Error(`the ride ${key} was in flight for ${settleMsMax} ms, and not killed at "${point}"`);
  }

  /** A process is gone: it must have killed itself, and the one that stands by takes its place. */
  async #replace(victim: RidesProcess): Promise<void> {
    await Promise.race([victim.ended, delay(endMsMax)]);
    const isOwnKill = this.stops().some(({ pid, signal }) => pid === victim.pid && signal === "SIGKILL");
    if (victim.signalCode !== "SIGKILL" || !isOwnKill) {
      throw new Error(
        `a ride service of ${this.#options.name} broke off, and not because it killed itself (${victim.signalCode})`,
      );
    }
    // Several rides may find the same process gone.
    if (this.#serving === victim) await this.#handOver();
  }

  async #handOver(): Promise<void> {
    const successor = this.#standby;
    this.#standby = this.#startStandby();
    this.#serving = await successor;
    this.#serving.work();
  }

  async #untilWorkersFinish(key: string): Promise<void> {
    for (const until = Date.now() + settleMsMax; Date.now() < until; await delay(retryMs)) {
      const { state } = await this.#serving.record(key);
      // Where the process died before anything was written down, only the client knows of the ride.
      if (state === "completed" || state === "absent") return;
    }
    throw new Error(
      `no worker finished the ride ${key} within ${settleMsMax} ms: ${await this.#storyOf(key)}`,
    );
  }

  /** Sends the request again until it has its final answer, and once more to see that it stays. */
  async #finish(key: string): Promise<BookedRide> {
    const { status, text } = await this.#untilFinal(key);
    const again = await this.#untilFinal(key);
    if (!again.isReplay || again.status !== status || again.text !== text) {
      throw new Error(`the ride ${key} was answered ${status} ${text}, and then ${show(again)}`);
    }
    const { ride, charge } = JSON.parse(text) as { ride: string; charge?: string };
    const booked: BookedRide = { key, status, ride, charge, killedAt: this.#stopsOf(key) };
    this.rides.push(booked);
    return booked;
  }

  async #untilFinal(key: string): Promise<FinalAnswer> {
    let last: BookAnswer | undefined;
    for (const until = Date.now() + settleMsMax; Date.now() < until; await delay(retryMs)) {
      const serving = this.#serving;
      const answer = await serving.book(key);
      if (isFinal(answer)) return answer;
      // A handler may come to its point after its client was told that it takes too long.
      if (answer.kind === "lost") await this.#replace(serving);
      last = answer;
    }
    throw new Error(
      `the ride ${key} has no final answer after ${settleMsMax} ms; the last one was ${last && show(last)}: ` +
        (await this.#storyOf(key)),
    );
  }

  /** All that is known about a ride, for whoever has to find out what became of it. */
  async #storyOf(key: string): Promise<string> {
    const killedAt = this.#stopsOf(key).join(", ") || "no point";
    return `it was killed at ${killedAt}, and its story is ${JSON.stringify(await this.record(key))}`;
  }

  /** Whoever needs the process gets the error of its start; until then it is nobody's. */
  #startStandby(): Promise<RidesProcess> {
    const started = this.#start();
    started.catch(() => {});
    return started;
  }
}

type FinalAnswer = Extract<BookAnswer, { kind: "answered" }> & { readonly status: BookedRide["status"] };

function isFinal(answer: BookAnswer): answer is FinalAnswer {
  return answer.kind === "answered" && (answer.status === 201 || answer.status === 402);
}

/** Another attempt is under way, or its outcome is not known yet. */
const inFlightStatus = 409;

function show(answer: BookAnswer): string {
  return answer.kind === "lost" ? "nothing" : `${answer.status} ${answer.text}`;
}
