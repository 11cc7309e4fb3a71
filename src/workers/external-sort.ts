import { type FileHandle, mkdtemp, open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deserialize, serialize } from "node:v8";

/** A row beside what it is sorted by. */
export interface Keyed<Row> {
  readonly key: string;
  readonly row: Row;
}

/** Rows travel in blocks, because a promise for each of millions of rows would take longer than sorting them. */
export type Block<Row> = readonly Keyed<Row>[];

const fanIn = 64; // Runs that are merged at once: their files are open together, and a process may open 1024.

/**
 * The rows in the order of their keys, by UTF-16 code units, with about `chunkRows` of them in memory: sorted runs are
 * written to temporary files and merged. The files are gone when the iteration ends, however it does.
 */
export async function* sortedByKey<Row>(
  rows: AsyncIterable<Row> | Iterable<Row>,
  { keyOf, chunkRows }: { readonly keyOf: (row: Row) => string; readonly chunkRows: number },
): AsyncGenerator<Block<Row>, void, void> {
  // Readable for this user only: these are payments.
  const folder = await mkdtemp(join(tmpdir(), "latchkey-sort-"));
  const blockRows = Math.ceil(chunkRows / fanIn); // So that the blocks of all merged runs are one chunk together.
  let files = 0;
  const newRun = () => join(folder, String(files++));
  try {
    const runs: string[] = [];
    for await (const chunk of blocksOf(rows, { keyOf, blockRows: chunkRows })) {
      chunk.sort(byKey);
      runs.push(await writeRun(newRun(), slicesOf(chunk, blockRows)));
    }
    while (runs.length > fanIn) {
      const merged = runs.splice(0, fanIn);
      runs.push(await writeRun(newRun(), mergeRuns<Row>(merged, blockRows)));
      await Promise.all(merged.map((run) => rm(run)));
    }
    yield* mergeRuns<Row>(runs, blockRows);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The rows with their keys, in the order in which they come. */
export async function* blocksOf<Row>(
  rows: AsyncIterable<Row> | Iterable<Row>,
  { keyOf, blockRows }: { readonly keyOf: (row: Row) => string; readonly blockRows: number },
): AsyncGenerator<Keyed<Row>[], void, void> {
  let block: Keyed<Row>[] = [];
  const isFullWith = (row: Row) => block.push({ key: keyOf(row), row }) >= blockRows;
  const takeBlock = () => {
    const full = block;
    block = [];
    return full;
  };
  if (Symbol.asyncIterator in rows) {
    for await (const row of rows) if (isFullWith(row)) yield takeBlock();
  } else {
    for (const row of rows) if (isFullWith(row)) yield takeBlock();
  }
  if (block.length > 0) yield block;
}

function byKey(a: Keyed<unknown>, b: Keyed<unknown>): number {
  return a.key < b.key ? -1 : a.key > b.key ? 1 : 0;
}

function* slicesOf<T>(values: readonly T[], size: number): Generator<readonly T[], void, void> {
  for (let start = 0; start < values.length; start += size) yield values.slice(start, start + size);
}

/** A run is blocks, each with its length before it. V8's own format also keeps dates and big integers as they are. */
async function writeRun<Row>(
  path: string,
  blocks: AsyncIterable<Block<Row>> | Iterable<Block<Row>>,
): Promise<string> {
  const file = await open(path, "wx", 0o600);
  try {
    for await (const block of blocks) {
      const bytes = serialize(block.map(({ key, row }) => [key, row]));
      const length = Buffer.allocUnsafe(lengthBytes);
      length.writeUInt32LE(bytes.length);
      await file.writev([length, bytes]);
    }
  } finally {
    await file.close();
  }
  return path;
}

const lengthBytes = 4;

/** All rows of several runs, in order. */
async function* mergeRuns<Row>(
  paths: readonly string[],
  blockRows: number,
): AsyncGenerator<Block<Row>, void, void> {
  const cursors: Cursor<Row>[] = [];
  try {
    const heap: Cursor<Row>[] = [];
    for (const path of paths) {
      const cursor = new Cursor<Row>(await open(path, "r"));
      cursors.push(cursor);
      if (await cursor.start()) heap.push(cursor);
    }
    for (let index = (heap.length >> 1) - 1; index >= 0; index -= 1) siftDown(heap, index);
    let block: Keyed<Row>[] = [];
    for (let first = heap[0]; first !== undefined; first = heap[0]) {
      if (block.push(first.head) >= blockRows) {
        yield block;
        block = [];
      }
      if (!first.step() && !(await first.readBlock())) {
        const last = heap.pop();
        if (last !== undefined && heap.length > 0) heap[0] = last;
      }
      siftDown(heap, 0);
    }
    if (block.length > 0) yield block;
  } finally {
    await Promise.all(cursors.map((cursor) => cursor.close()));
  }
}

/** Restores the order of a heap of which only the element at `index` may be too large for its place. */
function siftDown<Row>(heap: Cursor<Row>[], index: number): void {
  const moved = heap[index];
  if (moved === undefined) return;
  let place = index;
  for (;;) {
    const left = heap[2 * place + 1];
    if (left === undefined) break;
    const right = heap[2 * place + 2];
    const isRightSmaller = right !== undefined && right.head.key < left.head.key;
    const child = isRightSmaller ? right : left;
    if (moved.head.key <= child.head.key) break;
    heap[place] = child;
    place = 2 * place + (isRightSmaller ? 2 : 1);
  }
  heap[place] = moved;
}

/** A place in a run. */
class Cursor<Row> {
  readonly #file: FileHandle;
  #block: readonly (readonly [string, Row])[] = [];
  #index = 0;
  #head: Keyed<Row> | undefined;
  /** The length of the block that comes next; 0 at the end of the run. */
  #nextBytes = 0;

  constructor(file: FileHandle) {
    this.#file = file;
  }

  get head(): Keyed<Row> {
    if (this.#head === undefined) throw new Error("a run was read beyond its end");
    return this.#head;
  }

  /** Goes to the first row; false if there is none. */
  async start(): Promise<boolean> {
    const length = await this.#read(lengthBytes);
    if (length.length === lengthBytes) this.#nextBytes = length.readUInt32LE();
    return this.readBlock();
  }

  /** Goes on within what has been read; false at its end. */
  step(): boolean {
    this.#index += 1;
    return this.#setHead();
  }

  /** Goes on with the next block; false at the end of the run. */
  async readBlock(): Promise<boolean> {
    const blockBytes = this.#nextBytes;
    if (blockBytes === 0) return false;
    // Together with the length of the block after it: one read instead of two.
    const bytes = await this.#read(blockBytes + lengthBytes);
    this.#block = deserialize(bytes.subarray(0, blockBytes));
    this.#nextBytes = bytes.length > blockBytes ? bytes.readUInt32LE(blockBytes) : 0;
    this.#index = 0;
    return this.#setHead();
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  /** As many bytes, or fewer at the end of the file. */
  async #read(bytes: number): Promise<Buffer> {
    const buffer = Buffer.allocUnsafe(bytes);
    let filled = 0;
    while (filled < bytes) {
      const { bytesRead } = await this.#file.read(buffer, filled, bytes - filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return buffer.subarray(0, filled);
  }

  #setHead(): boolean {
    const entry = this.#block[this.#index];
    this.#head = entry && { key: entry[0], row: entry[1] };
    return entry !== undefined;
  }
}
