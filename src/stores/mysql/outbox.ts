import type { DeadMessage, Delivery, Message, NewMessage, Outbox, OutboxCounts } from "../../core/outbox.ts";
import { messageOf } from "../message-row.ts";
import { type ColumnValue, wholeMs } from "../record-row.ts";
import { requeued } from "../requeued.ts";
import { batchesOf, changeInBatches, powersOfTwo } from "./batches.ts";
import { type Database, padded, type Row, type Session } from "./database.ts";
import * as statements from "./outbox-statements.ts";
import { digestOf, insertAudit } from "./records.ts";

/** Messages in the same database as the records, and in the transactions of the atomic phases. */
export class MysqlOutbox implements Outbox {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  async claim({ owner, limit, leaseMs }: Parameters<Outbox["claim"]>[0]): Promise<readonly Message[]> {
    const lanes = await this.#claimLanes(owner, leaseMs);
    if (lanes.length === 0) return [];
    // A snapshot of its own, which is later than the commit of whoever had these lanes before.
    const rows = await this.#database.snapshot((session) => readDue(session, lanes, limit));
    // Others have come between the two. Lanes with nothing in them are not to be held.
    if (rows.length === 0) await this.settle(owner, []);
    return rows.map((row) => messageOf(row.number, row));
  }

  async settle(owner: string, deliveries: readonly Delivery[]): Promise<void> {
    const held = await this.#database.read(statements.readLanesOf, [owner]);
    if (held.length === 0) return;
    const wanted = padded(numbersOf(held, "lane"));
    await this.#database.transaction(async (session) => {
      const mine = await session.rows(statements.lockLanesOf(wanted.list), [...wanted.values, owner]);
      if (mine.length === 0) return;
      const lanes = padded(numbersOf(mine, "lane"));
      await writeDeliveries(session, lanes, deliveries);
      await session.change(statements.freeLanes(lanes.list), lanes.values);
    });
  }

  async counts(): Promise<OutboxCounts> {
    const [row] = await this.#database.read(statements.countMessages);
    const firstDueAt = row?.first_due_at ?? null;
    return {
      waiting: Number(row?.waiting),
      dead: Number(row?.dead),
      oldestDueMs: firstDueAt === null ? 0 : Math.max(0, Number(row?.clock) - Number(firstDueAt)),
    };
  }

  async deadLetters({ limit, after }: Parameters<Outbox["deadLetters"]>[0]): Promise<readonly DeadMessage[]> {
    const rows = await this.#database.read(statements.readDead(limit), [Number(after ?? 0)]);
    return rows.map((row) => ({
      ...messageOf(row.number, row),
      error: row.error as string,
      diedAt: row.died_at as number,
    }));
  }

  async requeue(ids: readonly string[], by: string): Promise<number> {
    const wanted = [...new Set(ids.filter(isNumber).map(Number))];
    let revived = 0;
    for (const batch of batchesOf(wanted)) revived += await this.#requeueSome(batch, by);
    return revived;
  }

  async prune({ limit, retentionMs }: Parameters<Outbox["prune"]>[0]): Promise<number> {
    const found = await this.#database.read(statements.findDelivered(limit), [wholeMs(retentionMs)]);
    return changeInBatches(this.#database, numbersOf(found, "number"), statements.deleteMessages);
  }

  /** As for workers, the dead are looked for first, and then locked. */
  async #requeueSome(wanted: List, by: string): Promise<number> {
    const found = await this.#database.read(statements.findDead(wanted.list), wanted.values);
    if (found.length === 0) return 0;
    const dead = padded(numbersOf(found, "number"));
    return this.#database.transaction(async (session) => {
      const rows = await session.rows(statements.lockDead(dead.list), dead.values);
      if (rows.length === 0) return 0;
      const locked = padded(numbersOf(rows, "number"));
      await session.change(statements.revive(locked.list), locked.values);
      await insertAudit(
        session,
        rows.map((row) => requeued(messageOf(row.number, row), { by, at: Number(row.clock) })),
      );
      return rows.length;
    });
  }

  async #claimLanes(owner: string, leaseMs: number): Promise<readonly number[]> {
    const found = await this.#database.read(statements.findLanes(lanesPerClaim), [owner, owner]);
    if (found.length === 0) return [];
    const wanted = padded(numbersOf(found, "lane"));
    return this.#database.transaction(async (session) => {
      const free = await session.rows(statements.lockLanes(wanted.list), [...wanted.values, owner]);
      if (free.length === 0) return [];
      const lanes = padded(numbersOf(free, "lane"));
      await session.change(statements.takeLanes(lanes.list), [owner, wholeMs(leaseMs), ...lanes.values]);
      return numbersOf(free, "lane");
    });
  }
}

/** As many as the migration has made. */
const laneCount = 64;

/** A share of the lanes, so that four relays can always work side by side. */
const lanesPerClaim = 16;

/** Writes messages down; must be called in the transaction that they belong to. */
export async function insertMessages(session: Session, messages: readonly NewMessage[]): Promise<void> {
  for (const some of powersOfTwo(messages)) {
    await session.change(statements.insertMessages(some.length), some.flatMap(messageRow));
  }
}

function messageRow(message: NewMessage): ColumnValue[] {
  const { topic, payload, partition, key, correlationId, scope, traceparent, delayMs } = message;
  const partitionId = partition === null ? null : digestOf(partition);
  const lane = laneOf(partitionId);
  return [
    lane,
    lane,
    topic,
    partitionId,
    partition,
    key,
    correlationId,
    scope,
    traceparent,
    wholeMs(delayMs),
    payload,
  ];
}

/** A partition has one lane for good, whichever process enqueues. The rest is spread evenly. */
function laneOf(partitionId: Buffer | null): number {
  if (partitionId !== null) return partitionId.readUInt32BE() % laneCount;
  turn = (turn + 1) % laneCount;
  return turn;
}

let turn = 0;

/** What may be delivered from these lanes, in order: each partition from its first message to the first not due. */
async function readDue(session: Session, lanes: readonly number[], limit: number): Promise<readonly Row[]> {
  const { list, values } = padded(lanes);
  const ready = await session.rows(statements.findReady(list, limit), [...values, ...values]);
  // Of each twice its share of the batch: some have less than theirs.
  const share = Math.min(limit, 2 ** Math.ceil(Math.log2((2 * limit) / Math.max(1, ready.length))));
  const due: Row[] = [];
  for (const { lane, partition_id } of ready) {
    const [sql, parameters] =
      partition_id === null
        ? [statements.readLane(share), [lane as number]]
        : [statements.readPartition(share), [lane as number, partition_id as ColumnValue]];
    const rows = await session.rows(sql, parameters);
    const firstNotDue = rows.findIndex(({ is_due }) => is_due !== 1);
    due.push(...(firstNotDue === -1 ? rows : rows.slice(0, firstNotDue)));
    if (due.length >= 2 * limit) break;
  }
  return due.sort((a, b) => Number(a.number) - Number(b.number)).slice(0, limit);
}

type List = ReturnType<typeof padded<number>>;

async function writeDeliveries(
  session: Session,
  lanes: List,
  deliveries: readonly Delivery[],
): Promise<void> {
  const gone: number[] = [];
  for (const delivery of deliveries) {
    if (!isNumber(delivery.id)) continue;
    const of: ColumnValue[] = [Number(delivery.id), ...lanes.values];
    switch (delivery.kind) {
      case "delivered":
        if (delivery.reference === undefined) gone.push(Number(delivery.id));
        else await session.change(statements.keepDelivered(lanes.list), [delivery.reference, ...of]);
        break;
      case "failed":
        await session.change(statements.postpone(lanes.list), [
          wholeMs(delivery.retryAfterMs),
          delivery.error,
          ...of,
        ]);
        break;
      case "dead":
        await session.change(statements.bury(lanes.list), [delivery.error, ...of]);
        break;
      default:
        delivery satisfies never;
    }
  }
  for (const { list, values } of batchesOf(gone)) {
    await session.change(statements.deleteDelivered(list, lanes.list), [...values, ...lanes.values]);
  }
}

/** Ids come back from outside. */
function isNumber(id: string): boolean {
  return /^\d{1,15}$/.test(id);
}

function numbersOf(rows: readonly Row[], column: string): number[] {
  return rows.map((row) => Number(row[column]));
}
