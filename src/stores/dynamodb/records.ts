import { randomUUID } from "node:crypto";
import type { AuditEntry } from "../../core/audit.ts";
import { StoreError } from "../../core/errors.ts";
import type { IdempotencyRecord, RecordId } from "../../core/record.ts";
import { auditItem, nextAuditNumber } from "./audit.ts";
import { storeError } from "./errors.ts";
import { type ItemKey, recordKey } from "./keys.ts";
import { type Entry, type Extras, entryOf, itemOf } from "./record-item.ts";
import { attemptsMax, type Condition, pause, type Table, type WriteOutcome, written } from "./table.ts";
import { bytesOf, type Item, itemBytesMax } from "./values.ts";

/** What is to be made of a record, and what whoever asked is told once it is written down. */
export interface Change<Answer> {
  readonly answer: Answer;
  /** Left out where nothing has to be written. */
  readonly write?: RecordWrite;
}

export interface RecordWrite extends Extras {
  readonly record: IdempotencyRecord;
  /** Why this is off the happy path, if it is. */
  readonly audit?: Why & { readonly from: IdempotencyRecord; readonly at: number };
}

type Why = Pick<AuditEntry, "by" | "reason">;

type Decide<Answer> = (entry: Entry | undefined) => Change<Answer> | Promise<Change<Answer>>;

interface ChangeOptions {
  readonly assume?: "absent";
}

/** The records of the table. Whatever is written is written only if the record is still what was read. */
export class Records {
  readonly table: Table;

  constructor(table: Table) {
    this.table = table;
  }

  async get(id: RecordId): Promise<Entry | undefined> {
    const entry = await this.#get(recordKey(id));
    assertIsOf(id, entry);
    return entry;
  }

  /**
   * Reads a record, asks `decide` what is to be made of it, and writes that down, again and again until nobody came
   * between. `assume: "absent"` spares the reading: if there is a record after all, the first write brings it back.
   */
  change<Answer>(id: RecordId, decide: Decide<Answer>, options: ChangeOptions = {}): Promise<Answer> {
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
      const { answer, write } = await decide(entry);
      if (write === undefined) return answer;
      const outcome = await this.#write(entry, write);
      switch (outcome.kind) {
        case "written":
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

  async #get(key: ItemKey): Promise<Entry | undefined> {
    const item = await this.table.get(key);
    return item && entryOf(item);
  }

  async #write(from: Entry | undefined, write: RecordWrite): Promise<WriteOutcome> {
    const { record, audit } = write;
    const version = randomUUID();
    const audited = audit === undefined ? from?.audited : nextAuditNumber(audit.at, from?.audited);
    const item = checkedItem(itemOf(record, version, { ...write, audited }));
    const unchanged: Condition = (expression) =>
      from === undefined ? expression.notExists("pk") : expression.equal({ version: { S: from.version } });
    const outcome =
      audit === undefined || audited === undefined
        ? await this.table.put(item, unchanged)
        : await this.#writeBoth(
            { item, unchanged, version },
            auditItem({ record, ...audit, number: audited }),
          );
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
    try {
      const reasons = await this.table.transact(writes, version);
      if (reasons === undefined) return written;
      const [reason] = reasons;
      if (reason?.Code === "ConditionalCheckFailed") return { kind: "refused", item: reason.Item };
      return { kind: "busy" };
    } catch (error) {
      throw storeError(error, this.table.name);
    }
  }
}

/** A long name is the SHA-256 of one: that two have the same is not to be expected, and must not go unnoticed. */
function assertIsOf({ scope, key }: RecordId, entry: Entry | undefined): void {
  if (entry === undefined || (entry.record.scope === scope && entry.record.key === key)) return;
  throw new StoreError("two keys have one name in the table: nothing was written");
}

/** Found out here, because DynamoDB would say so only after everything was sent. */
export function checkedItem(item: Item): Item {
  const size = bytesOf(item);
  if (size <= itemBytesMax) return item;
  throw new StoreError(
    `a record of ${size} bytes does not fit into one item of DynamoDB (400 KB), and nothing was written: keep less of ` +
      "the request (requestBytesMax), of the results of its phases, or of its response (responseBytesMax)",
  );
}
