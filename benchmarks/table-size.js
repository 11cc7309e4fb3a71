// Does a large table cost throughput, does an empty one, and does one that grows? `ROWS=50000000 node benchmarks/table-size.js` asks about
// fifty million, for which it wants some 50 GB of disk.
import { answerWhenStarted, ratioBar, times, whole } from "./lib/answer.js";
import { latchkeyOn } from "./lib/contenders.js";
import { fillRecords } from "./lib/filling.js";
import { closedLoop } from "./lib/load.js";
import { query, withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { leaveRoom } from "./lib/room.js";
import { interleave, medianOf, turns } from "./lib/rounds.js";
import { numberOf } from "./lib/settings.js";

/** @typedef {import("./lib/postgres.js").PostgresServer} PostgresServer */

const few = numberOf("FEW_ROWS", 1_000_000);
const many = numberOf("ROWS", 5_000_000);
const callers = 64;
const cold = "an empty table, from its first moment";
const grown = "the same table and connections, a moment later";
const used = "a table in use, which has room where records were removed";
const named = (/** @type {number} */ rows) => `${whole(rows)} rows`;

export function run() {
  return withPostgres((server) =>
    withDatabase(server, (fewUrl) =>
      withDatabase(server, (manyUrl) =>
        withDatabase(server, (usedUrl) =>
          measure(server, { [named(few)]: fewUrl, [named(many)]: manyUrl, [used]: usedUrl }),
        ),
      ),
    ),
  );
}

/**
 * Random keys are looked for everywhere in their index, so that in use all of it is in memory. Whoever has just filled
 * tens of gigabytes has nothing of it there.
 *
 * @param {string} url
 */
function warm(url) {
  return query(
    url,
    `SET enable_seqscan = off; SET enable_bitmapscan = off;
     SELECT count(*) FROM (SELECT FROM latchkey_records ORDER BY scope, key OFFSET 0) AS all_of_them`,
  );
}

/**
 * @param {PostgresServer} server
 * @param {Record<string, string>} urls by the names of their sizes
 * @returns {Promise<import("./lib/answer.js").Answer>}
 */
async function measure(server, urls) {
  const fillSteps = 2 * Math.ceil(few / 500_000) + Math.ceil(many / 500_000);
  const progress = createProgress(fillSteps + turns(4));
  const fills = {
    [named(few)]: await fill(urls[named(few)] ?? "", few, progress),
    [named(many)]: await fill(urls[named(many)] ?? "", many, progress),
  };
  await fill(urls[used] ?? "", few, progress);
  await leaveRoom(urls[used] ?? "", "latchkey_records");
  for (const url of Object.values(urls)) await warm(url);
  const fewRows = await latchkeyOn(urls[named(few)] ?? "");
  const manyRows = await latchkeyOn(urls[named(many)] ?? "");
  const roomy = await latchkeyOn(urls[used] ?? "");
  /** @type {import("./lib/load.js").ClosedSample[]} */
  const later = [];
  try {
    const samples = await interleave(
      {
        [named(few)]: () => closedLoop({ callers, operation: () => fewRows.operation() }),
        [named(many)]: () => closedLoop({ callers, operation: () => manyRows.operation() }),
        [used]: () => closedLoop({ callers, operation: () => roomy.operation() }),
        [cold]: () =>
          withDatabase(server, async (url) => {
            const empty = await latchkeyOn(url);
            const operation = () => empty.operation();
            const first = await closedLoop({ callers, operation, warmUpSeconds: 0 });
            // Plans that were made for an empty table would show by now.
            later.push(await closedLoop({ callers, operation, warmUpSeconds: 0 }));
            await empty.close();
            return first;
          }),
      },
      progress,
    );
    return report({ ...samples, [grown]: later }, fills);
  } finally {
    await fewRows.close();
    await manyRows.close();
    await roomy.close();
  }
}

/**
 * @param {string} url
 * @param {number} rows
 * @param {{ step(line: string): void }} progress
 */
function fill(url, rows, progress) {
  return fillRecords(url, rows, (done) => progress.step(`filling: ${whole(done)} of ${whole(rows)} rows`));
}

/**
 * @param {Record<string, import("./lib/load.js").ClosedSample[]>} samples
 * @param {Record<string, { seconds: number, bytes: number }>} fills
 * @returns {import("./lib/answer.js").Answer}
 */
function report(samples, fills) {
  const rate = (/** @type {string} */ name) => medianOf(samples[name], "rate");
  const of = rate(named(few));
  return {
    tables: [
      {
        title: `Fresh operations per second by the size of the table, ${callers} callers`,
        columns: ["table", "per second", `of ${named(few)}`, "on disk", "bytes per row", "filled in"],
        rows: [cold, grown, named(few), named(many), used].map((name) => {
          const filled = fills[name];
          const rows = name === named(few) ? few : many;
          return [
            name,
            whole(rate(name)),
            times(rate(name) / of),
            filled ? `${(filled.bytes / 1e9).toFixed(2)} GB` : "",
            filled ? whole(filled.bytes / rows) : "",
            filled ? `${whole(filled.seconds)} s` : "",
          ];
        }),
      },
    ],
    bars: [
      ratioBar(`${named(many)}: ${named(few)}`, { rate: rate(named(many)), of, atLeast: 0.8 }),
      ratioBar(`${cold}: ${named(few)}`, { rate: rate(cold), of, atLeast: 0.5 }),
      ratioBar(`${grown}: ${named(few)}`, { rate: rate(grown), of, atLeast: 0.8 }),
    ],
  };
}

await answerWhenStarted(import.meta.url, run);
