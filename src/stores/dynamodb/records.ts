import { randomUUID } from "node:crypto";
import { StoreError, StoreRefusedError } from "../../core/errors.ts";
import type { RecordId } from "../../core/record.ts";
import { encodeRequest } from "../../core/stored-request.ts";
import type { Move, Moved } from "../moves.ts";
import { auditItem, nextAuditNumber } from "./audit.ts";
import { forgetBody } from "./bodies.ts";
import { storeError } from "./errors.ts";
import { type ItemKey, recordKey } from "./keys.ts";
import { type Extras, entryOf, type ItemEntry, itemOf } from "./record-item.ts";
import { attemptsMax, type Condition, pause, type Table, type WriteOutcome, written } from "./table.ts";
import { bytesOf, contentBytesMax, type Item } from "./values.ts";

/** What becomes of a record, and what an item says beside it. */
export type Change<Answer> = Moved<Answer> & Pick<Extras, "after" | "parts">;

type Decide<Answer> = (entry: ItemEntry | undefined) => Change<Answer> | Promise<Change<Answer>>;

interface ChangeOptions {
  /** Spares the reading: if there is a record after all, the first write is refused and brings it back. */
  readonly assume?: "absent";
}

/** The records of the table. Whatever is written is written only if the record is still what was read. */
export class Records {
  readonly table: Table;

  constructor(table: Table) {
    this.table = table;
  }

  async get(id: RecordId): Promise<ItemEntry | undefined> {
    const entry = await this.#get(recordKey(id));
    assertIsOf(id, entry);
    return entry;
  }

  /**
   * Reads a record, asks `decide` what is to be made of it, and writes that down, again and again until nobody came
   * between.
   */
  async change<Answer>(id: RecordId, decide: Decide<Answer>, options: ChangeOptions = {}): Promise<Answer> {
    const decideOwn: Decide<Answer> = (entry) => {
      assertIsOf(id, entry);
      return decide(entry);
    };
    return this.changeAt(recordKey(id), decideOwn, options);
  }

  /** The same for a record that was found in the index. */
  async changeAt<Answer>(
    key: ItemKey,
    decide: Decide<Answer>,
    { assume }: ChangeOptions = {},
  ): Promise<Answer> {
    let entry = assume === "absent" ? undefined : await this.#get(key);
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      const { answer, move, ...extras } = await decide(entry);
      if (move === undefined) return answer;
      const outcome = await this.#write(entry, move, extras);
      switch (outcome.kind) {
        case "written":
          // Nothing that follows a completed record has its answer.
          if (entry?.parts !== undefined) await forgetBody(this.table, entry.parts);
          return answer;
        case "refused":
          entry = outcome.item && entryOf(outcome.item);
          break;
        case "busy":
          await pause(attempt);
          entry = await this.#get(key);
          break;
        default:
          outcome satisfies never;
      }
    }
    throw new StoreError(`the record changed during each of ${attemptsMax} attempts to change it`);
  }

  async #get(key: ItemKey): Promise<ItemEntry | undefined> {
    const item = await this.table.get(key);
    return item && entryOf(item);
  }

  async #write(from: ItemEntry | undefined, move: Move, extras: Extras): Promise<WriteOutcome> {
    const { to, lastOwner, audit } = move;
    const version = randomUUID();
    const request = move.request === undefined ? from?.request : encoded(move.request.kept);
    const audited = audit === undefined ? from?.audited : nextAuditNumber(audit.at, from?.audited);
    const item = itemOf(to, version, { ...extras, lastOwner, request, audited });
    // Only what a caller chooses to add is refused here: a record must be able to leave the state that it is in.
    const isMore = requestBytes(request) > requestBytes(from?.request);
    if (isMore && bytesOf(item) > contentBytesMax) {
      // It may only have been assumed that there is no record: one that is there is answered from, as ever.
      const found = from === undefined ? await this.table.get(recordKey(to)) : undefined;
      if (found === undefined) throw contentTooLarge(bytesOf(item));
      return { kind: "refused", item: found };
    }
    const unchanged: Condition = (expression) =>
      from === undefined ? expression.notExists("pk") : expression.equal({ version: { S: from.version } });
    const outcome =
      audit === undefined || audited === undefined
        ? await this.table.put(item, unchanged)
        : await this.#writeBoth({ item, unchanged, version }, auditItem(audit, audited));
    // The client sends again what it got no answer to, and then meets what it has written itself.
    return outcome.kind === "refused" && outcome.item?.version?.S === version ? written : outcome;
  }

  async #writeBoth(
    { item, unchanged, version }: { item: Item; unchanged: Condition; version: string },
    audit: Item,
  ): Promise<WriteOutcome> {
    const writes = [
      { Put: this.table.putInput(item, unchanged) },
      { Put: { TableName: this.table.name, Item: audit } },
    ];
    const reasons = await this.table.transact(writes, version);
    if (reasons === undefined) return written;
    const [reason] = reasons;
    const wrong = reasons.find(({ Code }) => Code === "ValidationError");
    if (wrong !== undefined) {
      throw storeError({ name: "ValidationException", message: wrong.Message }, this.table.name);
    }
    return reason?.Code === "ConditionalCheckFailed"
      ? { kind: "refused", item: reason.Item }
      : { kind: "busy" };
  }
}

function encoded(request: Parameters<typeof encodeRequest>[0] | undefined): Extras["request"] {
  return request && encodeRequest(request);
}

/** A long name is the SHA-256 of one: that two have the same is not to be expected, and must not go unnoticed. */
function assertIsOf({ scope, key }: RecordId, entry: ItemEntry | undefined): void {
  if (entry === undefined || (entry.record.scope === scope && entry.record.key === key)) return;
  throw new StoreError("two keys have one name in the table: nothing was written");
}

function requestBytes(request: Extras["request"]): number {
  return request === undefined ? 0 : Buffer.byteLength(request.head) + request.body.byteLength;
}

/** For what a caller chose to keep: DynamoDB might take it, but not what has to be added to it later. */
export function contentTooLarge(size: number): StoreError {
  return new StoreRefusedError(
    `${size} bytes are more than may be kept in one item of DynamoDB (400 KB, some of which has to be left free), and ` +
      "nothing was written: keep less of the request (requestBytesMax), of the results of its phases, of its messages, or of its response (responseBytesMax)",
  );
}
