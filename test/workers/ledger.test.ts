import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  type CompareLedgersOptions,
  compareLedgers,
  type LedgerCounts,
  type LedgerDifference,
  UnsortedLedgerError,
} from "../../src/workers/ledger.ts";

interface Row {
  readonly id: string;
  readonly amount?: number;
  readonly at?: Date;
  readonly total?: bigint;
}

const keys = { providerKey: (row: Row) => row.id, ourKey: (row: Row) => row.id };
const rowsOf = (...ids: string[]): Row[] => ids.map((id) => ({ id }));

type Comparison = AsyncGenerator<LedgerDifference<Row, Row>, LedgerCounts, void>;

async function all(comparison: Comparison) {
  const differences: LedgerDifference<Row, Row>[] = [];
  for (;;) {
    const { done, value } = await comparison.next();
    if (done) return { differences, counts: value };
    differences.push(value);
  }
}

const compare = (options: Partial<CompareLedgersOptions<Row, Row>>) =>
  all(compareLedgers({ provider: [], ours: [], ...keys, ...options }));

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "latchkey-ledger-"));
  vi.stubEnv("TMPDIR", folder);
});
afterEach(() => {
  // Whatever a comparison wrote is gone when it ends.
  const left = readdirSync(folder).filter((name) => name.startsWith("latchkey-"));
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
  expect(left).toEqual([]);
});

describe.each([{ sorted: true }, { sorted: false }])("with $sorted for sorted, a comparison", (how) => {
  it("finds charges without a record, records without a charge, and those that do not agree", async () => {
    const { differences, counts } = await compare({
      ...how,
      provider: [
        { id: "a", amount: 1 },
        { id: "b", amount: 2 },
        { id: "d", amount: 4 },
      ],
      ours: [
        { id: "b", amount: 2 },
        { id: "c", amount: 3 },
        { id: "d", amount: 5 },
      ],
      equal: (provider, ours) => provider.amount === ours.amount,
    });
    expect(differences).toEqual([
      { kind: "missing-here", key: "a", provider: { id: "a", amount: 1 } },
      { kind: "missing-there", key: "c", ours: { id: "c", amount: 3 } },
      { kind: "differs", key: "d", provider: { id: "d", amount: 4 }, ours: { id: "d", amount: 5 } },
    ]);
    expect(counts).toEqual({
      provider: 3,
      ours: 3,
      agreed: 1,
      missingHere: 1,
      missingThere: 1,
      differs: 1,
      duplicates: 0,
    });
  });

  it("reports every further row of one key, on either side, and compares the first", async () => {
    const { differences, counts } = await compare({
      ...how,
      provider: rowsOf("a", "a", "a", "b"),
      ours: rowsOf("a", "b", "b", "c", "c"),
    });
    expect(differences.map((difference) => [difference.kind, difference.key])).toEqual([
      ["duplicate", "a"],
      ["duplicate", "a"],
      ["duplicate", "b"],
      ["missing-there", "c"],
      ["duplicate", "c"],
    ]);
    expect(differences[0]).toMatchObject({ side: "provider", provider: { id: "a" } });
    expect(differences[2]).toMatchObject({ side: "ours", ours: { id: "b" } });
    expect(counts).toMatchObject({ agreed: 2, duplicates: 4, provider: 4, ours: 5 });
  });

  it("takes rows as they come from a database cursor or a provider's pages", async () => {
    async function* pages() {
      yield* rowsOf("a", "b");
      yield* rowsOf("c");
    }
    const { counts } = await compare({ ...how, provider: pages(), ours: pages() });
    expect(counts.agreed).toBe(3);
  });

  it("has nothing to say about two empty ledgers", async () => {
    const { differences, counts } = await compare(how);
    expect(differences).toEqual([]);
    expect(counts).toMatchObject({ provider: 0, ours: 0, agreed: 0 });
  });

  it("lets go of both sides when nobody wants to know more", async () => {
    const ended: string[] = [];
    async function* endless(side: string) {
      try {
        for (let n = 0; ; n += 1) {
          if (!how.sorted && n === 300) return;
          yield { id: `${side}${String(n).padStart(9, "0")}` };
        }
      } finally {
        ended.push(side);
      }
    }
    const comparison = compareLedgers({
      provider: endless("p"),
      ours: endless("o"),
      ...keys,
      ...how,
      chunkRows: 100,
    });
    for await (const _difference of comparison) break;
    expect(ended.sort()).toEqual(["o", "p"]);
  });

  it("passes on what a side throws, and lets go of the other", async () => {
    const broken = new Error("the provider is down");
    async function* failing() {
      for (let n = 0; n < 300; n += 1) yield { id: String(n).padStart(9, "0") };
      throw broken;
    }
    await expect(compare({ ...how, provider: rowsOf("a"), ours: failing(), chunkRows: 100 })).rejects.toBe(
      broken,
    );
  });

  it("refuses a key that is not text", async () => {
    const providerKey = () => undefined as unknown as string;
    await expect(compare({ ...how, provider: rowsOf("a"), providerKey })).rejects.toThrow(
      'the key of a row of "provider" is undefined',
    );
  });
});

it("says which side is not sorted although it was said to be", async () => {
  const comparing = compare({ sorted: true, provider: rowsOf("a", "b"), ours: rowsOf("b", "a") });
  await expect(comparing).rejects.toBeInstanceOf(UnsortedLedgerError);
  await expect(comparing).rejects.toThrow('"ours" are not in the order of their keys: "a" comes after "b"');
});

it("orders keys by their code units wherever they come from", async () => {
  // In the order of Unicode's code points, and so of UTF-8, the first of these would be the last.
  const inOrder = rowsOf("Z", "a", "\u{1F511}", "\uFF5E");
  const sorted = await compare({ sorted: true, provider: inOrder, ours: inOrder });
  expect(sorted.counts.agreed).toBe(4);
  const unsorted = await compare({ provider: inOrder.toReversed(), ours: [] });
  expect(unsorted.differences.map(({ key }) => key)).toEqual(inOrder.map(({ id }) => id));
});

it("keeps dates and big integers as they are on their way through a file", async () => {
  const row = { id: "a", at: new Date(7), total: 10n ** 20n };
  const { differences } = await compare({ provider: [row] });
  expect(differences).toEqual([{ kind: "missing-here", key: "a", provider: row }]);
});

it("sorts through any number of files", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.string({ maxLength: 3 }), { maxLength: 400 }),
      fc.array(fc.string({ maxLength: 3 }), { maxLength: 400 }),
      fc.integer({ min: 1, max: 50 }),
      async (theirIds, ourIds, chunkRows) => {
        const { differences, counts } = await compare({
          provider: rowsOf(...theirIds),
          ours: rowsOf(...ourIds),
          chunkRows,
        });
        const [theirs, ours] = [new Set(theirIds), new Set(ourIds)];
        const keysOf = (kind: string) =>
          differences.filter((difference) => difference.kind === kind).map(({ key }) => key);
        expect(keysOf("missing-here")).toEqual([...theirs].filter((id) => !ours.has(id)).sort());
        expect(keysOf("missing-there")).toEqual([...ours].filter((id) => !theirs.has(id)).sort());
        expect(counts.duplicates).toBe(theirIds.length - theirs.size + ourIds.length - ours.size);
      },
    ),
    { numRuns: 40 },
  );
});

it("leaves other files of the temporary folder alone", async () => {
  mkdirSync(join(folder, "mine"));
  writeFileSync(join(folder, "mine", "file"), "");
  await compare({ provider: rowsOf("a"), ours: rowsOf("b") });
  expect(readdirSync(join(folder, "mine"))).toEqual(["file"]);
  rmSync(join(folder, "mine"), { recursive: true });
});

/** In a process of its own, so that its memory and its files can be limited. */
async function compareInProcess(rows: number, chunkRows: number, limits: string) {
  const script = fileURLToPath(new URL("./fixtures/ledger-process.ts", import.meta.url));
  const command = `${limits} exec "$0" --max-old-space-size=64 --import tsx "$@"`;
  const args = ["-c", command, process.execPath, script, String(rows), String(chunkRows)];
  const { stdout } = await promisify(execFile)("sh", args);
  return JSON.parse(stdout);
}

it("has no more than a hundred files open, however many it needs", async () => {
  const { counts } = await compareInProcess(20_000, 100, "ulimit -n 150;");
  expect(counts).toMatchObject({ provider: 19_999, ours: 19_999, agreed: 19_997 });
}, 60_000);

it("compares two million rows in no order within a heap of 64 megabytes", async () => {
  const { found, counts } = await compareInProcess(1_000_000, 20_000, "");
  expect(found).toEqual({
    "missing-here": ["ch_11", "ch_250011", "ch_500011", "ch_750011"],
    "missing-there": ["ch_200007", "ch_400007", "ch_600007", "ch_7", "ch_800007"],
    differs: ["ch_13", "ch_500013"],
  });
  expect(counts).toMatchObject({ provider: 999_995, ours: 999_996, agreed: 999_989, duplicates: 0 });
}, 120_000);
