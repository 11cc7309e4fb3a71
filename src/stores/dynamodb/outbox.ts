import { randomUUID } from "node:crypto";
import { StoreError } from "../../core/errors.ts";
import type { DeadMessage, Delivery, Message, Outbox, OutboxCounts } from "../../core/outbox.ts";
import { requeued } from "../requeued.ts";
import { auditItem, nextAuditNumber } from "./audit.ts";
import { LaneClaims, type Unit } from "./claims.ts";
import { inParallel } from "./concurrency.ts";
import type { Context } from "./context.ts";
import { findInIndex } from "./due.ts";
import { indexed, keyItem, keyOf } from "./keys.ts";
import { deliverable } from "./lane.ts";
import {
  deadItem,
  deliveredItem,
  idOf,
  laneOf,
  lanes,
  messageItem,
  messageKey,
  messageOf,
  type Numbered,
  numberedOf,
  parseId,
} from "./messages.ts";
import { attemptsMax, type Condition, pause, type Table } from "./table.ts";
import { type Item, number, numberIn, numberInIf, text, textIn } from "./values.ts";

/** A quarter of all lanes, so that a relay with much to do leaves something for three others. */
const lanesPerClaim = 4;

/** Messages in the same table as the records, and in the transactions of the atomic phases. */
export class DynamoDbOutbox implements Outbox {
  readonly #table: Table;
  readonly #claims: LaneClaims;
  readonly #context: Context;

  constructor(context: Context) {
    this.#context = context;
    this.#table = context.records.table;
    this.#claims = new LaneClaims(this.#table);
  }

  async claim({ owner, limit, leaseMs }: Parameters<Outbox["claim"]>[0]): Promise<readonly Message[]> {
    const now = this.#context.now();
    const lapsed = now - this.#context.clockSkewMs;
    const ready = await this.#readyLanes({ owner, now, lapsed });
    const claimed: Numbered[] = [];
    let taken = 0;
    // Where a lane has nothing after all, because everything in it waits for something, there is room for another.
    while (ready.length > 0 && taken < lanesPerClaim && claimed.length < limit) {
      const group = ready.splice(0, Math.min(lanesPerClaim - taken, limit - claimed.length));
      const share = Math.floor((limit - claimed.length) / group.length);
      const batches = await inParallel(group, async (lane) => {
        if (!(await this.#claims.take(lane, { owner, until: now + leaseMs, lapsed }))) return [];
        const batch = await deliverable(this.#table, this.#claims, { lane, owner, limit: share, now });
        if (batch.length === 0) await this.#claims.free(lane, owner);
        return batch;
      });
      taken += batches.filter(({ length }) => length > 0).length;
      claimed.push(...batches.flat());
    }
    return claimed.sort((a, b) => a.sequence - b.sequence).map(messageOf);
  }

  async settle(owner: string, deliveries: readonly Delivery[]): Promise<void> {
    const now = this.#context.now();
    const claims = await this.#claims.read();
    const own = lanes.filter((lane) => claims.get(lane)?.owner === owner);
    const messages = await this.#messagesToMove(deliveries);
    // Of what is told twice of one message the first word counts; one transaction could not have both.
    const first = new Map(deliveries.toReversed().map((delivery) => [delivery.id, delivery]));
    await inParallel(own, async (lane) => {
      const units = [...first.values()].flatMap((delivery) => {
        const place = parseId(delivery.id);
        if (place === undefined || laneOf(place.pk) !== lane) return [];
        return [this.#settling(place, messages.get(delivery.id), delivery, now)];
      });
      await this.#claims.carryOut(lane, owner, units, { frees: true });
    });
  }

  async counts(): Promise<OutboxCounts> {
    const now = this.#context.now();
    let waiting = 0;
    let firstDue = now;
    await inParallel(lanes, async (lane) => {
      for await (const items of findInIndex(this.#table, "outbox", lane, {})) {
        for (const item of items) {
          waiting += numberInIf(item, "messages") ?? 1;
          // What waits behind another message is shown from when that one is due.
          firstDue = Math.min(firstDue, numberIn(item, "dueAt"));
        }
      }
    });
    let dead = 0;
    for await (const items of findInIndex(this.#table, "dead", 0, {})) dead += items.length;
    return { waiting, dead, oldestDueMs: now - firstDue };
  }

  async deadLetters({ limit, after }: Parameters<Outbox["deadLetters"]>[0]): Promise<readonly DeadMessage[]> {
    const place = after === undefined ? undefined : parseId(after);
    const start = place && {
      ...keyItem(messageKey(place, "dead")),
      ...indexed("dead", 0, place.sequence),
    };
    const letters: DeadMessage[] = [];
    const query = start === undefined ? { limit } : { limit, after: start };
    for await (const page of findInIndex(this.#table, "dead", 0, query)) {
      const found = await this.#table.getAll(page.map(keyOf));
      const byKey = new Map(found.map((item) => [textIn(item, "pk") + textIn(item, "sk"), item]));
      for (const { pk, sk } of page.map(keyOf)) {
        const item = byKey.get(pk + sk);
        if (item !== undefined) letters.push(deadMessageOf(item));
      }
      if (letters.length >= limit) break;
    }
    return letters.slice(0, limit);
  }

  async requeue(ids: readonly string[], by: string): Promise<number> {
    const now = this.#context.now();
    const places = [...new Set(ids)].flatMap((id) => parseId(id) ?? []);
    const dead = await this.#table.getAll(places.map((place) => messageKey(place, "dead")));
    const revived = await inParallel(dead.map(numberedOf), (message) =>
      this.#together([
        { Delete: this.#table.deleteInput(messageKey(message, "dead"), isThere) },
        this.#put(messageItem({ ...message, attempts: 0, due: now })),
        this.#put(auditItem(requeued(message, { by, at: now }), nextAuditNumber(now))),
      ]),
    );
    return revived.filter(Boolean).length;
  }

  async prune({ limit, retentionMs }: Parameters<Outbox["prune"]>[0]): Promise<number> {
    const until = this.#context.now() - retentionMs;
    let pruned = 0;
    for (const lane of lanes) {
      if (pruned >= limit) break;
      for await (const page of findInIndex(this.#table, "delivered", lane, {
        until,
        limit: limit - pruned,
      })) {
        const old = page.slice(0, limit - pruned).map(keyOf);
        const outcomes = await inParallel(old, (key) => this.#table.delete(key, isThere));
        pruned += outcomes.filter(({ kind }) => kind === "written").length;
        if (pruned >= limit) break;
      }
    }
    return pruned;
  }

  /** Lanes that are free, lapsed or this relay's, and have something due; the longest due first. */
  async #readyLanes(relay: { owner: string; now: number; lapsed: number }): Promise<number[]> {
    const claims = await this.#claims.read();
    const open = lanes.filter((lane) => {
      const claim = claims.get(lane);
      return claim === undefined || claim.owner === relay.owner || claim.until <= relay.lapsed;
    });
    const firstDue = await inParallel(open, async (lane) => {
      const pages = findInIndex(this.#table, "outbox", lane, { until: relay.now, limit: 1 });
      const first = await pages.next();
      const [item] = first.done ? [] : first.value;
      return item === undefined ? [] : [{ lane, dueAt: numberIn(item, "dueAt") }];
    });
    return firstDue
      .flat()
      .sort((a, b) => a.dueAt - b.dueAt)
      .map(({ lane }) => lane);
  }

  /** Those that are not only deleted or postponed have to be read. */
  async #messagesToMove(deliveries: readonly Delivery[]): Promise<ReadonlyMap<string, Numbered>> {
    const moved = deliveries.filter(
      (delivery) =>
        delivery.kind === "dead" || (delivery.kind === "delivered" && delivery.reference !== undefined),
    );
    const places = moved.flatMap(({ id }) => parseId(id) ?? []);
    const items = await this.#table.getAll(places.map((place) => messageKey(place, "message")));
    return new Map(items.map(numberedOf).map((message) => [idOf(message), message]));
  }

  #settling(
    place: Pick<Numbered, "pk" | "sequence">,
    message: Numbered | undefined,
    delivery: Delivery,
    now: number,
  ): Unit {
    const key = messageKey(place, "message");
    const removal = { Delete: this.#table.deleteInput(key, isThere) };
    switch (delivery.kind) {
      case "delivered": {
        const { reference } = delivery;
        if (reference === undefined || message === undefined) return [removal];
        return [removal, this.#put(deliveredItem(message, { reference, at: now }))];
      }
      case "failed": {
        const due = number(now + delivery.retryAfterMs);
        const set = { due, dueAt: due, error: text(delivery.error) };
        const update = this.#table.updateInput(key, { set, add: { attempts: 1 } }, isThere);
        return [{ Update: update }];
      }
      case "dead": {
        // Without the message its unit must fail, as it does where the message is gone.
        if (message === undefined) return [removal];
        const { error } = delivery;
        const attempts = message.attempts + 1;
        return [removal, this.#put(deadItem({ ...message, attempts }, { error, diedAt: now }))];
      }
      default:
        return delivery satisfies never;
    }
  }

  #put(item: Item) {
    return { Put: { TableName: this.#table.name, Item: item } };
  }

  /** Whether the conditions of these writes held. */
  async #together(writes: Unit): Promise<boolean> {
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      const reasons = await this.#table.transact(writes, randomUUID());
      if (reasons === undefined) return true;
      if (reasons.some(({ Code }) => Code === "ConditionalCheckFailed")) return false;
      await pause(attempt);
    }
    throw new StoreError(`DynamoDB was busy with a dead message during each of ${attemptsMax} attempts`);
  }
}

const isThere: Condition = (expression) => expression.exists("pk");

function deadMessageOf(item: Item): DeadMessage {
  return {
    ...messageOf(numberedOf(item)),
    error: textIn(item, "error"),
    diedAt: numberIn(item, "diedAt"),
  };
}
