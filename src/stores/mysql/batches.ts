import { type Database, padded } from "./database.ts";

/** What a primary key is made of. */
export type Key = number | string | Uint8Array;

/** Nobody has to wait for longer than this many rows take. */
export const batchSize = 128;

/** Each in the order of the primary key, in which everybody locks. */
export function* batchesOf<K extends Key>(keys: readonly K[]): Generator<ReturnType<typeof padded<K>>> {
  for (let start = 0; start < keys.length; start += batchSize) {
    yield padded(keys.slice(start, start + batchSize).sort(inKeyOrder));
  }
}

/** Some at a time, as many as a power of two, so that few statements are prepared. */
export function* powersOfTwo<T>(items: readonly T[]): Generator<readonly T[]> {
  for (let start = 0; start < items.length; ) {
    const size = Math.min(batchSize, 2 ** Math.floor(Math.log2(items.length - start)));
    yield items.slice(start, start + size);
    start += size;
  }
}

/** Answers how many rows were changed by a statement that takes a list of keys. */
export async function changeInBatches(
  database: Database,
  keys: readonly Key[],
  statement: (list: string) => string,
): Promise<number> {
  let changed = 0;
  for (const { list, values } of batchesOf(keys)) changed += await database.change(statement(list), values);
  return changed;
}

function inKeyOrder(a: Key, b: Key): number {
  return typeof a === "number" && typeof b === "number" ? a - b : Buffer.compare(bytesOf(a), bytesOf(b));
}

function bytesOf(key: Key): Uint8Array {
  return key instanceof Uint8Array ? key : Buffer.from(String(key));
}
