import { createHash, randomUUID } from "node:crypto";
import { ConfigError, StoreError } from "../../core/errors.ts";
import type { IdempotencyRecord } from "../../core/record.ts";
import type { StoredResponse } from "../../core/response.ts";
import { expired } from "../../core/transition.ts";
import { inParallel } from "./concurrency.ts";
import { keyItem } from "./keys.ts";
import { type BodyParts, type ItemEntry, partsOf, ttl } from "./record-item.ts";
import type { Table, WriteOutcome } from "./table.ts";
import { bytes, bytesInIf, textIn } from "./values.ts";

export interface BodiesOptions {
  /** Whether a body that is too large for its record lies in items of its own, or is not taken at all. */
  readonly largeBodies: "split" | "refuse";
  readonly partBytes: number;
}

/** The bodies of responses that are too large for their records. */
export class Bodies {
  readonly #table: Table;
  readonly #options: BodiesOptions;

  constructor(table: Table, options: BodiesOptions) {
    this.#table = table;
    this.#options = options;
  }

  get responseBytesMax(): number {
    return this.#options.largeBodies === "split" ? splitBytesMax : inlineBytesMax;
  }

  /**
   * Writes a large body down before the record that will refer to it: undefined if it fits into the record, in which
   * there is `room`. The parts of one that is never referred to are deleted by DynamoDB, when the record would have been.
   */
  async keep(
    response: StoredResponse,
    { expiresAt, room = Number.POSITIVE_INFINITY }: { readonly expiresAt: number; readonly room?: number },
  ): Promise<BodyParts | undefined> {
    if (response.kind === "omitted") return undefined;
    const { body } = response;
    const { largeBodies, partBytes } = this.#options;
    if (body.byteLength > this.responseBytesMax) {
      throw new StoreError(
        `a response of ${body.byteLength} bytes is larger than the ${this.responseBytesMax} that this store keeps: set ` +
          "responseBytesMax on the route",
      );
    }
    if (largeBodies === "refuse" || body.byteLength <= Math.min(partBytes, room)) return undefined;
    const name = randomUUID();
    const parts = Array.from({ length: Math.ceil(body.byteLength / partBytes) }, (_, nth) => nth);
    await inParallel(parts, async (nth) => {
      const item = {
        ...keyItem(partKey(name, nth)),
        body: bytes(body.subarray(nth * partBytes, (nth + 1) * partBytes)),
        ...ttl(expiresAt, partGraceMs),
      };
      const outcome = await this.#table.put(item, (expression) => expression.notExists("pk"));
      // A name that is there already is this one's own, sent twice by the client.
      if (outcome.kind === "busy") throw new StoreError("DynamoDB was busy with a part of a response");
    });
    return { name, count: parts.length, bytes: body.byteLength, sha256: sha256(body) };
  }

  /**
   * The record with its body; undefined if that is not there as it was written. A record that is past its time may have
   * lost it already, and is as good as expired.
   */
  async whole({ record, parts }: ItemEntry, now: number): Promise<IdempotencyRecord | undefined> {
    if (record.state !== "completed" || record.response.kind !== "full" || parts === undefined) return record;
    const body = await this.#read(parts);
    if (body !== undefined) return { ...record, response: { ...record.response, body } };
    return record.expiresAt <= now ? expired(record) : undefined;
  }

  /** Undefined if any part is not what was written. */
  async #read({ name, count, bytes: size, sha256: expected }: BodyParts): Promise<Uint8Array | undefined> {
    const keys = Array.from({ length: count }, (_, nth) => partKey(name, nth));
    const items = await this.#table.getAll(keys);
    const parts = new Map(items.map((item) => [textIn(item, "pk"), bytesInIf(item, "body")]));
    const body = Buffer.concat(keys.map(({ pk }) => parts.get(pk) ?? new Uint8Array()));
    if (body.byteLength !== size || sha256(body) !== expected) return undefined;
    // As a body has it that was not split: a Buffer is told from that where two answers are compared.
    return new Uint8Array(body.buffer, body.byteOffset, body.byteLength);
  }
}

/**
 * Deletes what nothing refers to any more, so that an answer that was taken away is gone for good. What cannot be deleted
 * now is deleted by DynamoDB later.
 */
export async function forgetBody(table: Table, { name, count }: BodyParts): Promise<void> {
  const keys = Array.from({ length: count }, (_, nth) => partKey(name, nth));
  await inParallel(keys, (key) => table.delete(key, (expression) => expression.exists("pk"))).catch(() => {});
}

/** The same for a record that was deleted, if it was. */
export async function forgetBodyOf(table: Table, outcome: WriteOutcome): Promise<void> {
  const parts = outcome.kind === "written" && outcome.old ? partsOf(outcome.old) : undefined;
  if (parts !== undefined) await forgetBody(table, parts);
}

export function checkedPartBytes(partBytes: number): number {
  if (Number.isInteger(partBytes) && partBytes > 0 && partBytes <= inlineBytesMax) return partBytes;
  throw new ConfigError(`partBytes is ${partBytes} and must be a whole number from 1 to ${inlineBytesMax}`);
}

/** Each part is under a partition key of its own, so that reading a large body does not depend on one partition. */
function partKey(name: string, nth: number) {
  return { pk: `body#${name}#${nth}`, sk: "body" };
}

function sha256(body: Uint8Array): string {
  return createHash("sha256").update(body).digest("base64url");
}

/** What an item holds, less what the headers of a response and the phases of its operation may take. */
const inlineBytesMax = 360 * 1024;

/** Far above any answer of an API; more would take so many writes that whoever waits for them gives up. */
const splitBytesMax = 16 * 1024 * 1024;

/** Longer than that of records: as long as a record is there, its body is. */
const partGraceMs = 3 * 24 * 3_600_000;
