import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import type { LedgerCharge } from "../../examples/rocket-rides/provider/ledger.ts";
import type { Behaviour, ProviderListening } from "../../examples/rocket-rides/provider/server.ts";
import type { RidesPrograms } from "./rides-bundle.ts";
import {
  type BooksState,
  bookPaths,
  type FromRides,
  type RecordStory,
  type RidesServerOptions,
  type StopHow,
  stopHeaders,
  type ToRides,
} from "./rides-options.ts";
import type { Point } from "./rides-points.ts";

/** The payment provider of examples/rocket-rides, in a process of its own. */
export interface ProviderProcess {
  readonly url: string;
  behave(behaviour: Partial<Behaviour>): Promise<void>;
  charges(): Promise<readonly LedgerCharge[]>;
  stop(): Promise<void>;
}

export async function startProvider(
  programs: RidesPrograms,
  options: { readonly ledger: string; readonly behaviour: Partial<Behaviour> },
): Promise<ProviderProcess> {
  const child = fork(programs.provider, {
    execArgv: [],
    env: { ...process.env, PORT: "0", LEDGER: options.ledger, BEHAVIOUR: JSON.stringify(options.behaviour) },
  });
  const [{ port }] = (await once(child, "message")) as [ProviderListening];
  const url = `http://127.0.0.1:${port}`;
  return {
    url,
    async behave(behaviour) {
      await fetch(`${url}/behaviour`, { method: "POST", body: JSON.stringify(behaviour) });
    },
    charges: async () => (await (await fetch(`${url}/charges`)).json()) as LedgerCharge[],
    stop: () => killed(child),
  };
}

export interface BookOptions {
  /** At which point the process stops itself, or the request stays where it is. */
  readonly stopAt?: Point;
  readonly how?: StopHow;
}

const patienceMs = 60_000; // Longer than any answer takes; a service that never answers fails the test all the same.

/** What a client got: an answer, or nothing because the connection broke. */
export type BookAnswer =
  | {
      readonly kind: "answered";
      readonly status: number;
      readonly isReplay: boolean;
      readonly text: string;
    }
  | { readonly kind: "lost" };

/** A ride service in a process of its own; see test/fixtures/rides-server.ts. */
export interface RidesProcess {
  readonly pid: number;
  /** By which signal it ended; null while it runs. */
  readonly signalCode: NodeJS.Signals | null;
  readonly ended: Promise<void>;
  /** Starts the workers: until then the process only stands by. */
  work(): void;
  book(key: string, options?: BookOptions): Promise<BookAnswer>;
  /** Sends a request that stays at the point; answers with its answer, if it was refused before it came there. */
  park(key: string, stopAt: Point): Promise<BookAnswer | "parked">;
  /** Makes the process kill itself, with whatever is parked in it. */
  kill(): void;
  /** The points that a request comes to, in order, and its answer. */
  watch(key: string): Promise<{ readonly points: readonly Point[]; readonly answer: BookAnswer }>;
  /** Waits until a request that is watched has come to the point. */
  came(point: Point): Promise<void>;
  record(key: string): Promise<RecordStory>;
  books(): Promise<BooksState>;
  goOn(): void;
  stop(): Promise<void>;
}

export async function startRides(
  programs: RidesPrograms,
  options: RidesServerOptions,
): Promise<RidesProcess> {
  const child = fork(programs.server, [JSON.stringify(options)], { execArgv: [] });
  const ended = once(child, "exit").then(() => {});
  const passed: Point[] = [];
  const parking = new Map<string, () => void>();
  const port = await new Promise<number>((resolve, reject) => {
    child.on("message", (message: FromRides) => {
      if (message.type === "listening") resolve(message.port);
      else if (message.type === "passed") passed.push(message.point);
      else parking.get(message.key)?.();
    });
    void ended.then(() => reject(new Error(`a ride service ended before it listened (${child.exitCode})`)));
  });
  const url = `http://127.0.0.1:${port}`;

  async function book(key: string, headers: Readonly<Record<string, string>>): Promise<BookAnswer> {
    try {
      const response = await fetch(`${url}/rides`, {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": key, ...headers },
        body: '{"from":"Baikonur","to":"the Moon"}',
        signal: AbortSignal.timeout(patienceMs),
      });
      const isReplay = response.headers.get("idempotency-replayed") === "true";
      return { kind: "answered", status: response.status, isReplay, text: await response.text() };
    } catch {
      return { kind: "lost" };
    }
  }

  return {
    pid: child.pid as number,
    get signalCode() {
      return child.signalCode;
    },
    ended,
    work: () => void child.send({ type: "work" } satisfies ToRides),
    book: (key, { stopAt, how = "SIGKILL" } = {}) =>
      book(key, stopAt === undefined ? {} : { [stopHeaders.at]: stopAt, [stopHeaders.how]: how }),
    async park(key, stopAt) {
      const parked = new Promise<"parked">((resolve) => {
        parking.set(key, () => resolve("parked"));
      });
      return Promise.race([parked, book(key, { [stopHeaders.at]: stopAt, [stopHeaders.how]: "park" })]);
    },
    kill: () => void child.send({ type: "kill" } satisfies ToRides),
    async watch(key) {
      passed.length = 0;
      const answer = await book(key, { [stopHeaders.watch]: "yes" });
      return { points: [...passed], answer };
    },
    async came(point) {
      for (const until = Date.now() + patienceMs; Date.now() < until; await delay(20)) {
        if (passed.includes(point)) return;
      }
      throw new Error(`no request came to "${point}" within ${patienceMs} ms`);
    },
    record: async (key) => (await (await fetch(`${url}${bookPaths.record}${key}`)).json()) as RecordStory,
    books: async () => (await (await fetch(`${url}${bookPaths.state}`)).json()) as BooksState,
    goOn: () => void child.kill("SIGCONT"),
    stop: () => killed(child),
  };
}

async function killed(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGKILL");
  await once(child, "exit");
}
