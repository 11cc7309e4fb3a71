import { StoreError } from "../../core/errors.ts";
import type { Pending } from "../../core/pending.ts";
import type { RecordId } from "../../core/record.ts";
import type { Lease, Reservation, ReserveRequest, SettleAnswer, Settlement } from "../../core/store.ts";
import { Gathering, type Verb } from "../gathering.ts";
import { Replies, reservationOf, settleAnswerOf } from "./replies.ts";
import { bufferOfReply, type Server } from "./server.ts";
import {
  type PackedCalls,
  packedReasons,
  packReserveCalls,
  packSettleCalls,
  type ReserveCall,
  reserveCallBytes,
  reserveCallOf,
  type SettleCall,
  settleCallBytes,
  settleCallOf,
} from "./wire.ts";

/**
 * Reservations and settlements, many in one script call. On one server a batch may hold any records; in a cluster each
 * bucket has its own, because a script stays within a slot, and because one node that is down must not hold up others.
 */
export class Batches {
  readonly #server: Server;
  readonly #lines: readonly Line[];

  constructor(server: Server, options: { readonly aloneMax?: number }) {
    this.#server = server;
    const count = server.link.isCluster ? server.names.tags.length : 1;
    this.#lines = Array.from({ length: count }, () => lineOf(server, options));
  }

  reserve(request: ReserveRequest): Pending<Reservation> {
    const { gathering, reserving } = this.#lineOf(request);
    return gathering.pend(reserving, request, reserveCallOf(request));
  }

  settle(lease: Lease, settlement: Settlement): Pending<SettleAnswer> {
    const { gathering, settling } = this.#lineOf(lease);
    return gathering.pend(settling, lease, settleCallOf(lease, settlement));
  }

  #lineOf(id: RecordId): Line {
    const [only] = this.#lines;
    const line = this.#lines.length === 1 ? only : this.#lines[this.#server.names.bucketOf(id)];
    if (line === undefined) throw new StoreError("there is no such bucket");
    return line;
  }
}

/** One call in each script: what there is without group commit. */
export class Singly {
  readonly #line: Line;

  constructor(server: Server) {
    this.#line = lineOf(server, {});
  }

  async reserve(request: ReserveRequest): Promise<Reservation> {
    return this.#line.reserving.alone(reserveCallOf(request), { isLeft: false });
  }

  async settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    return this.#line.settling.alone(settleCallOf(lease, settlement), { isLeft: false });
  }
}

interface Line {
  readonly gathering: Gathering;
  readonly reserving: Verb<ReserveCall, Reservation>;
  readonly settling: Verb<SettleCall, SettleAnswer>;
}

function lineOf(server: Server, options: { readonly aloneMax?: number }): Line {
  return {
    // A script has the server to itself, whatever the order of its records.
    gathering: new Gathering({ isRefusal: isBeforeWriting, isSorted: false, ...options }),
    reserving: new Reserving(server),
    settling: new Settling(server),
  };
}

/**
 * Whether a script was refused at its first write, because the server takes no writes now. Those of its calls that write
 * nothing, as retries of what is settled do, can still be answered.
 */
function isBeforeWriting(error: unknown): boolean {
  const cause = error instanceof StoreError ? error.cause : undefined;
  return cause instanceof Error && /^(OOM|MISCONF|NOREPLICAS|READONLY) /.test(cause.message);
}

class Reserving implements Verb<ReserveCall, Reservation> {
  readonly isUnordered = false;
  readonly isUrgent = false;
  readonly bytes = reserveCallBytes;
  readonly #server: Server;
  /** The server's clock minus this process's, which cannot be set; undefined until it has answered once. */
  #clockDifference: number | undefined;

  constructor(server: Server) {
    this.#server = server;
  }

  async alone(call: ReserveCall): Promise<Reservation> {
    const [answer] = await this.#ask([call], call.askedAt);
    if (answer === undefined || answer instanceof StoreError) throw answer;
    return answer;
  }

  async together(calls: readonly ReserveCall[]): Promise<readonly (Reservation | undefined)[]> {
    const answers = await this.#ask(calls, performance.now());
    return answers.map((answer) => (answer instanceof StoreError ? undefined : answer));
  }

  /**
   * What lay in a buffer for so long that everybody has given up must not be granted any more: nobody would execute it,
   * and its key would be taken. So the script is told when that is, on its own clock.
   */
  async #ask(calls: readonly ReserveCall[], since: number): Promise<readonly (Reservation | StoreError)[]> {
    const difference = this.#clockDifference;
    const until = difference === undefined ? "" : String(Math.ceil(since + difference + givenUpMs));
    const keys = calls.map(({ request }) => this.#server.names.keyOf(request));
    const { named, packed } = namedOf(this.#server, keys, (texts) => packReserveCalls(calls, texts));
    const replies = new Replies(
      bufferOfReply(await this.#server.write("reserve", named, [until, packedReasons, ...packed])),
    );
    this.#clockDifference = replies.time() - performance.now();
    return calls.map(({ request }) => reservationOf(replies, request));
  }
}

/** Well above the time within which the engine wants an answer. */
const givenUpMs = 10_000;

class Settling implements Verb<SettleCall, SettleAnswer> {
  readonly isUnordered = false;
  readonly isUrgent = true;
  readonly bytes = settleCallBytes;
  readonly #server: Server;

  constructor(server: Server) {
    this.#server = server;
  }

  async alone(call: SettleCall): Promise<SettleAnswer> {
    const [answer] = await this.#ask([call]);
    if (answer === undefined || answer instanceof StoreError) throw answer;
    return answer;
  }

  async together(calls: readonly SettleCall[]): Promise<readonly (SettleAnswer | undefined)[]> {
    const answers = await this.#ask(calls);
    return answers.map((answer) => (answer instanceof StoreError ? undefined : answer));
  }

  async #ask(calls: readonly SettleCall[]): Promise<readonly (SettleAnswer | StoreError)[]> {
    const keys = calls.map(({ lease }) => this.#server.names.keyOf(lease));
    const { named, packed } = namedOf(this.#server, keys, (texts) => packSettleCalls(calls, texts));
    const replies = new Replies(bufferOfReply(await this.#server.write("settle", named, [...packed])));
    replies.time();
    return calls.map(() => settleAnswerOf(replies));
  }
}

/**
 * A cluster has to be told in the command itself which keys a script is about. A single server does not, and every key
 * there costs more than the same bytes within another argument; one stands for all.
 */
function namedOf(server: Server, keys: readonly string[], pack: (keys: readonly string[]) => PackedCalls) {
  return server.link.isCluster
    ? { named: keys, packed: pack([]) }
    : { named: keys.slice(0, 1), packed: pack(keys) };
}
