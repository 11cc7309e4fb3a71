import { randomBytes } from "node:crypto";
import type {
  DeadMessage,
  Delivery,
  Message,
  NewMessage,
  Outbox,
  OutboxCounts,
} from "../../../core/outbox.ts";
import { requeued } from "../../requeued.ts";
import type { Parameter, Query } from "../database.ts";
import { type DeadRow, laneOf, lanesPerClaim, type MessageRow, messageOf } from "../outbox.ts";
import { durationMs } from "../rows.ts";
import { outbox as statements } from "./outbox-statements.ts";
import { chunks, type Records } from "./records.ts";
import { newRevision } from "./rows.ts";
import { audit } from "./statements.ts";

/** The outbox of `PostgresOutbox`, in plain statements. Nobody is woken: relays ask. */
export class DistributedOutbox implements Outbox {
  readonly #records: Records;

  constructor(records: Records) {
    this.#records = records;
  }

  async claim(options: { owner: string; limit: number; leaseMs: number }): Promise<readonly Message[]> {
    const wanted = await this.#freeLanes(options.owner);
    if (wanted.length === 0) return [];
    const claimed = await this.#records.all<{ lane: number }>(statements.claimLanes(wanted.length), [
      options.owner,
      durationMs(options.leaseMs),
      ...wanted,
    ]);
    if (claimed.length === 0) return [];
    // A statement of its own, because it must see what whoever had these lanes before has written down.
    const rows = await this.#records.all<MessageRow>(statements.due(claimed.length), [
      options.limit,
      ...claimed.map(({ lane }) => lane),
    ]);
    // Lanes with nothing to deliver are not to be held.
    if (rows.length === 0) await this.settle(options.owner, []);
    return rows.map(messageOf);
  }

  /** Lanes in which something is due and that nobody else holds: our own first, then those that waited longest. */
  async #freeLanes(owner: string): Promise<number[]> {
    const busy = new Set(
      (await this.#records.all<{ lane: number }>(statements.busyLanes)).map(({ lane }) => lane),
    );
    if (busy.size === 0) return [];
    const lanes = await this.#records.all<LaneRow>(statements.lanes);
    const isOurs = (lane: LaneRow) => lane.owner === owner;
    return lanes
      .filter(
        (lane) => busy.has(lane.lane) && (isOurs(lane) || lane.until === null || lane.until <= lane.now),
      )
      .sort(
        (a, b) => Number(isOurs(b)) - Number(isOurs(a)) || (a.until ?? 0) - (b.until ?? 0) || a.lane - b.lane,
      )
      .slice(0, lanesPerClaim)
      .map(({ lane }) => lane);
  }

  async settle(owner: string, deliveries: readonly Delivery[]): Promise<void> {
    await this.#records.together(async (query) => {
      // From here to the end nobody else can claim them, so what is written down is written by their owner.
      const lanes = (await query<{ lane: number }>(statements.freeLanes, [owner])).map(({ lane }) => lane);
      if (lanes.length === 0) return;
      const isGone = (delivery: Delivery) =>
        delivery.kind === "delivered" && delivery.reference === undefined;
      const gone = deliveries.filter(isGone).map(({ id }) => id);
      for (const ids of chunks(gone))
        await query(statements.remove(ids.length, lanes.length), [...ids, ...lanes]);
      for (const delivery of deliveries) {
        if (!isGone(delivery))
          await query(statements.change(lanes.length), [...changeParameters(delivery), ...lanes]);
      }
    });
  }

  async counts(): Promise<OutboxCounts> {
    const [waiting] = await this.#records.all<{ waiting: number; now: number }>(statements.counts);
    const [dead] = await this.#records.all<{ dead: number }>(statements.deadCount);
    const [oldest] = await this.#records.all<{ due: number | null }>(statements.oldest);
    const now = waiting?.now ?? 0;
    return {
      waiting: waiting?.waiting ?? 0,
      dead: dead?.dead ?? 0,
      oldestDueMs: Math.max(0, now - (oldest?.due ?? now)),
    };
  }

  async deadLetters(options: { limit: number; after?: string }): Promise<readonly DeadMessage[]> {
    const rows = await this.#records.all<DeadRow>(statements.deadLetters, [
      options.limit,
      options.after ?? "",
    ]);
    return rows.map((row) => ({ ...messageOf(row), error: row.error, diedAt: row.died }));
  }

  async requeue(ids: readonly string[], by: string): Promise<number> {
    let revived = 0;
    for (const some of chunks([...new Set(ids)])) {
      revived += await this.#records.together((query) => requeueSome(query, some, by));
    }
    return revived;
  }

  async prune(options: { limit: number; retentionMs: number }): Promise<number> {
    const old = await this.#records.all<{ id: string }>(statements.delivered, [
      options.limit,
      durationMs(options.retentionMs),
    ]);
    let pruned = 0;
    for (const some of chunks(old.map(({ id }) => id))) {
      pruned += (await this.#records.all(statements.prune(some.length), some)).length;
    }
    return pruned;
  }
}

/** In one transaction: whoever requeues the same messages meanwhile finds them not to be dead any more. */
async function requeueSome(query: Query, ids: readonly string[], by: string): Promise<number> {
  const dead = await query<DeadLetterRow>(statements.dead(ids.length), ids);
  if (dead.length === 0) return 0;
  const found = dead.map(({ id }) => id);
  const revived = new Set(
    (await query<{ id: string }>(statements.requeue(found.length), found)).map(({ id }) => id),
  );
  for (const { id, scope, key, attempts } of dead) {
    if (!revived.has(id)) continue;
    // The statement writes down when it was, by the engine's clock.
    const { fence, from, to, reason } = requeued({ scope: scope ?? "", key, attempts }, { by, at: 0 });
    await query(audit.write, [scope ?? "", key, `.${newRevision()}`, fence, from, to, by, reason]);
  }
  return revived.size;
}

interface DeadLetterRow extends Readonly<Record<string, Parameter>> {
  readonly id: string;
  readonly scope: string | null;
  readonly key: string;
  readonly attempts: number;
}

interface LaneRow extends Readonly<Record<string, Parameter>> {
  readonly lane: number;
  readonly owner: string | null;
  readonly until: number | null;
  readonly now: number;
}

/** Within the transaction of a phase. */
export async function enqueue(query: Query, messages: readonly NewMessage[]): Promise<void> {
  let place = 0;
  for (const some of chunks(messages)) {
    const parameters = some.flatMap((message): Parameter[] => {
      const { topic, partition, payload, key, correlationId, scope, traceparent, delayMs } = message;
      place += 1;
      return [
        idEnding(place),
        laneOf(partition),
        topic,
        partition,
        payload,
        key,
        correlationId,
        scope,
        traceparent,
        durationMs(delayMs),
      ];
    });
    await query(statements.enqueue(some.length), parameters);
  }
}

/** What follows the time: the place in the phase, and something that keeps two of one moment apart. All of one length. */
function idEnding(place: number): string {
  return `.${String(place).padStart(6, "0")}.${randomBytes(6).toString("hex")}`;
}

function changeParameters(delivery: Delivery): Parameter[] {
  const { id } = delivery;
  switch (delivery.kind) {
    case "delivered":
      return [id, "delivered", null, delivery.reference ?? null, null, 0];
    case "failed":
      return [id, "waiting", durationMs(delivery.retryAfterMs), null, delivery.error, 1];
    case "dead":
      return [id, "dead", null, null, delivery.error, 1];
    default:
      return delivery satisfies never;
  }
}
