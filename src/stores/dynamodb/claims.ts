import { randomUUID } from "node:crypto";
import type { TransactWriteItem } from "@aws-sdk/client-dynamodb";
import { StoreError } from "../../core/errors.ts";
import { storeError } from "./errors.ts";
import { Expression } from "./expression.ts";
import type { ItemKey } from "./keys.ts";
import { keyItem } from "./keys.ts";
import { attemptsMax, type Condition, pause, type Table } from "./table.ts";
import { number, numberIn, text, textIn, textInIf } from "./values.ts";

/** Writes that belong together; those of one unit carry the condition under which it is still to be done. */
export type Unit = readonly TransactWriteItem[];

/** Which relay has which lane, and until when. */
export class LaneClaims {
  readonly #table: Table;

  constructor(table: Table) {
    this.#table = table;
  }

  /** All claims are under one key, so that they are read at once. */
  async read(): Promise<ReadonlyMap<number, { readonly owner: string; readonly until: number }>> {
    const expression = new Expression();
    const pages = this.#table.query({
      KeyConditionExpression: expression.equal({ pk: text(claimsPk) }),
      ...expression.placeholders,
      ConsistentRead: true,
    });
    const claims = new Map<number, { owner: string; until: number }>();
    for await (const items of pages) {
      for (const item of items) {
        const owner = textInIf(item, "owner");
        if (owner !== undefined)
          claims.set(Number(textIn(item, "sk")), { owner, until: numberIn(item, "until") });
      }
    }
    return claims;
  }

  /** Whether the lane is this relay's now. Its claim is lapsed for others when it ended before `lapsed`. */
  async take(
    lane: number,
    { owner, until, lapsed }: { readonly owner: string; readonly until: number; readonly lapsed: number },
  ): Promise<boolean> {
    const set = { owner: text(owner), until: number(until) };
    const outcome = await this.#table.update(claimKey(lane), { set }, (expression) => {
      const isOver = `${expression.name("until")} <= ${expression.value(number(lapsed))}`;
      return `${expression.notExists("owner")} OR ${isOver} OR ${isOwn(owner)(expression)}`;
    });
    return outcome.kind === "written";
  }

  async free(lane: number, owner: string): Promise<void> {
    await this.#table.update(claimKey(lane), { remove: ["owner", "until"] }, isOwn(owner));
  }

  /**
   * Carries out units one batch after the other, while the lane is this relay's: false if it is not any more. A unit
   * whose own condition does not hold is left out. `frees` gives the lane back with the last batch.
   */
  async carryOut(
    lane: number,
    owner: string,
    units: readonly Unit[],
    { frees = false } = {},
  ): Promise<boolean> {
    const batches = batchesOf(units);
    for (const [nth, batch] of batches.entries()) {
      const isLast = nth === batches.length - 1;
      if (!(await this.#carryOutBatch(this.#guard(lane, owner, frees && isLast), batch))) return false;
    }
    if (frees && batches.length === 0) await this.free(lane, owner);
    return true;
  }

  async #carryOutBatch(guard: TransactWriteItem, batch: readonly Unit[]): Promise<boolean> {
    let units = batch;
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      const reasons = await this.#table
        .transact([guard, ...units.flat()], randomUUID())
        .catch((error: unknown) => {
          throw storeError(error, this.#table.name);
        });
      if (reasons === undefined) return true;
      const isRefused = reasons.map(({ Code }) => Code === "ConditionalCheckFailed");
      if (isRefused[0] === true) return false;
      let next = 1;
      const left = units.filter((unit) => {
        const from = next;
        next += unit.length;
        return !isRefused.slice(from, next).includes(true);
      });
      if (left.length === units.length) await pause(attempt);
      units = left;
    }
    throw new StoreError(
      `DynamoDB was busy with a lane of the outbox during each of ${attemptsMax} attempts`,
    );
  }

  #guard(lane: number, owner: string, frees: boolean): TransactWriteItem {
    if (frees) {
      return {
        Update: this.#table.updateInput(claimKey(lane), { remove: ["owner", "until"] }, isOwn(owner)),
      };
    }
    const expression = new Expression();
    return {
      ConditionCheck: {
        TableName: this.#table.name,
        Key: keyItem(claimKey(lane)),
        ConditionExpression: isOwn(owner)(expression),
        ...expression.placeholders,
      },
    };
  }
}

const claimsPk = "claims";

function claimKey(lane: number): ItemKey {
  return { pk: claimsPk, sk: String(lane) };
}

function isOwn(owner: string): Condition {
  return (expression) => expression.equal({ owner: text(owner) });
}

/** A transaction may have a hundred items, and one of them is the claim. */
function batchesOf(units: readonly Unit[]): Unit[][] {
  const batches: Unit[][] = [];
  let left = 0;
  for (const unit of units) {
    if (batches.length === 0 || unit.length > left) {
      batches.push([]);
      left = batchItemsMax;
    }
    batches.at(-1)?.push(unit);
    left -= unit.length;
  }
  return batches;
}

const batchItemsMax = 99;
