import { LatchkeyError } from "../core/errors.ts";
import { type Block, blocksOf, type Keyed, sortedByKey } from "./external-sort.ts";

export interface CompareLedgersOptions<Theirs, Ours> {
  /** What the provider says has happened: its list of charges, its settlement file, … */
  readonly provider: AsyncIterable<Theirs> | Iterable<Theirs>;
  /** What we say. */
  readonly ours: AsyncIterable<Ours> | Iterable<Ours>;
  /** What both sides call the same thing by. */
  readonly providerKey: (row: Theirs) => string;
  readonly ourKey: (row: Ours) => string;
  /** Whether two rows with one key agree, in amount and currency for example. They do unless told. */
  readonly equal?: (provider: Theirs, ours: Ours) => boolean;
  /** Both sides come in the order of their keys' UTF-16 code units already. It is checked. */
  readonly sorted?: boolean;
  /** How many rows are kept in memory while a side is sorted. Rows have to be plain data then. */
  readonly chunkRows?: number;
}

export type LedgerDifference<Theirs, Ours> =
  /** The provider has it and we do not. */
  | { readonly kind: "missing-here"; readonly key: string; readonly provider: Theirs }
  /** We have it and the provider does not. */
  | { readonly kind: "missing-there"; readonly key: string; readonly ours: Ours }
  | { readonly kind: "differs"; readonly key: string; readonly provider: Theirs; readonly ours: Ours }
  /** A second row, and each one after it, with the key of another one on the same side. */
  | { readonly kind: "duplicate"; readonly key: string; readonly side: "provider"; readonly provider: Theirs }
  | { readonly kind: "duplicate"; readonly key: string; readonly side: "ours"; readonly ours: Ours };

export interface LedgerCounts {
  readonly provider: number;
  readonly ours: number;
  readonly agreed: number;
  readonly missingHere: number;
  readonly missingThere: number;
  readonly differs: number;
  readonly duplicates: number;
}

const chunkRowsDefault = 20_000; // Some megabytes of ordinary rows.

/** A side that was said to be sorted is not. */
export class UnsortedLedgerError extends LatchkeyError {
  constructor(side: SideName, { key, after }: { readonly key: string; readonly after: string }) {
    super(
      "unsorted-ledger",
      `the rows of "${side}" are not in the order of their keys: "${key}" comes after "${after}". Leave sorted out, or ` +
        'sort them by UTF-16 code units (for ASCII keys: ORDER BY … COLLATE "C")',
    );
  }
}

/**
 * Compares what a provider says with what we say, whatever their size and order, in constant memory. Yields each
 * difference, in the order of the keys, and returns how many there were.
 *
 * @example
 * ```ts
 * for await (const difference of compareLedgers({
 *   provider: stripe.charges.list({ limit: 100 }),
 *   ours: chargesOfYesterday(),
 *   providerKey: (charge) => charge.id,
 *   ourKey: (row) => row.chargeId,
 *   equal: (charge, row) => charge.amount === row.amount,
 * })) report(difference);
 * ```
 */
export async function* compareLedgers<Theirs, Ours>(
  options: CompareLedgersOptions<Theirs, Ours>,
): AsyncGenerator<LedgerDifference<Theirs, Ours>, LedgerCounts, void> {
  const { equal = () => true } = options;
  const provider = new Side("provider", inOrder("provider", options.provider, options.providerKey, options));
  const ours = new Side("ours", inOrder("ours", options.ours, options.ourKey, options));
  const counts = { agreed: 0, missingHere: 0, missingThere: 0, differs: 0, duplicates: 0 };
  try {
    let theirRow = await provider.next();
    let ourRow = await ours.next();
    while (theirRow !== undefined || ourRow !== undefined) {
      if (theirRow !== undefined && theirRow.key === provider.keyBefore) {
        counts.duplicates += 1;
        yield { kind: "duplicate", key: theirRow.key, side: "provider", provider: theirRow.row };
        theirRow = await provider.next();
      } else if (ourRow !== undefined && ourRow.key === ours.keyBefore) {
        counts.duplicates += 1;
        yield { kind: "duplicate", key: ourRow.key, side: "ours", ours: ourRow.row };
        ourRow = await ours.next();
      } else if (theirRow !== undefined && (ourRow === undefined || theirRow.key < ourRow.key)) {
        counts.missingHere += 1;
        yield { kind: "missing-here", key: theirRow.key, provider: theirRow.row };
        theirRow = await provider.next();
      } else if (ourRow !== undefined && (theirRow === undefined || ourRow.key < theirRow.key)) {
        counts.missingThere += 1;
        yield { kind: "missing-there", key: ourRow.key, ours: ourRow.row };
        ourRow = await ours.next();
      } else if (theirRow !== undefined && ourRow !== undefined) {
        if (equal(theirRow.row, ourRow.row)) {
          counts.agreed += 1;
        } else {
          counts.differs += 1;
          yield { kind: "differs", key: ourRow.key, provider: theirRow.row, ours: ourRow.row };
        }
        theirRow = await provider.next();
        ourRow = await ours.next();
      }
    }
    return { provider: provider.rows, ours: ours.rows, ...counts };
  } finally {
    // Both, even if the first one fails: each may hold files or a connection.
    await Promise.allSettled([provider.end(), ours.end()]);
  }
}

/** One side of the comparison, row by row. */
class Side<Row> {
  readonly #name: SideName;
  readonly #blocks: AsyncGenerator<Block<Row>, void, void>;
  #block: Block<Row> = [];
  #index = 0;
  #key: string | undefined;
  /** The key of the row before the present one. */
  keyBefore: string | undefined;
  rows = 0;

  constructor(name: SideName, blocks: AsyncGenerator<Block<Row>, void, void>) {
    this.#name = name;
    this.#blocks = blocks;
  }

  /** The row after this one; a promise of it only where it has to be waited for. */
  next(): Keyed<Row> | undefined | Promise<Keyed<Row> | undefined> {
    const next = this.#block[this.#index];
    return next === undefined ? this.#firstOfNextBlock() : this.#stepTo(next);
  }

  async #firstOfNextBlock(): Promise<Keyed<Row> | undefined> {
    const { done, value } = await this.#blocks.next();
    const first = done ? undefined : value[0];
    if (done || first === undefined) return undefined;
    this.#block = value;
    this.#index = 0;
    return this.#stepTo(first);
  }

  #stepTo(next: Keyed<Row>): Keyed<Row> {
    this.#index += 1;
    this.rows += 1;
    this.keyBefore = this.#key;
    this.#key = next.key;
    if (this.keyBefore !== undefined && next.key < this.keyBefore) {
      throw new UnsortedLedgerError(this.#name, { key: next.key, after: this.keyBefore });
    }
    return next;
  }

  async end(): Promise<void> {
    await this.#blocks.return();
  }
}

type SideName = "provider" | "ours";

const sortedBlockRows = 256; // Enough that waiting for a block costs nothing per row.

function inOrder<Row>(
  side: SideName,
  rows: AsyncIterable<Row> | Iterable<Row>,
  keyOf: (row: Row) => string,
  {
    sorted = false,
    chunkRows = chunkRowsDefault,
  }: { readonly sorted?: boolean; readonly chunkRows?: number },
): AsyncGenerator<Block<Row>, void, void> {
  const checkedKeyOf = (row: Row) => {
    const key: unknown = keyOf(row);
    if (typeof key === "string") return key;
    throw new TypeError(`the key of a row of "${side}" is ${String(key)} and must be a string`);
  };
  return sorted
    ? blocksOf(rows, { keyOf: checkedKeyOf, blockRows: sortedBlockRows })
    : sortedByKey(rows, { keyOf: checkedKeyOf, chunkRows });
}
