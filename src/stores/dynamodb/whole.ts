import { StoreError } from "../../core/errors.ts";
import type { IdempotencyRecord } from "../../core/record.ts";
import type { Context } from "./context.ts";
import type { ItemEntry } from "./record-item.ts";

/**
 * A record with its body, or that it has changed since it was read: whoever takes an answer away deletes its parts then,
 * and whoever was about to read them has to look at the record again.
 */
export async function wholeOf(
  { records, bodies }: Context,
  entry: ItemEntry,
  now: number,
): Promise<
  | { readonly kind: "whole"; readonly record: IdempotencyRecord }
  | { readonly kind: "changed"; readonly entry: ItemEntry | undefined }
> {
  const record = await bodies.whole(entry, now);
  if (record !== undefined) return { kind: "whole", record };
  const current = await records.get(entry.record);
  if (current?.version !== entry.version) return { kind: "changed", entry: current };
  throw new StoreError(
    "a part of a stored response is missing or was changed: it cannot be replayed, and nothing is executed in its " +
      "place; bust the key to let it be used again",
  );
}
