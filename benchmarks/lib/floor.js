// The least that gathers: no engine, no fingerprint, no lease, no fence, no rules, and a table of three columns. Whoever does
// more than this is slower, so a bar above it is out of reach on the machine that it was measured on.
import { randomUUID } from "node:crypto";
import { poolOn } from "./contenders.js";
import { chargeBytes } from "./payload.js";

/** @typedef {import("./contenders.js").Contender} Contender */

const table = `CREATE TABLE IF NOT EXISTS floor_records
  (key text COLLATE "C" PRIMARY KEY, state text NOT NULL, response bytea) WITH (fillfactor = 50)`;
const reserve = {
  name: "floor_reserve",
  text: "INSERT INTO floor_records (key, state) SELECT k, 'in_progress' FROM unnest($1::text[]) AS k ON CONFLICT DO NOTHING",
};
// An UPDATE from a list keeps the plan that it was given while the table was empty.
const complete = {
  name: "floor_complete",
  text: `INSERT INTO floor_records AS r (key, state, response)
    SELECT k, 'completed', b FROM unnest($1::text[], $2::bytea[]) AS done (k, b)
    ON CONFLICT (key) DO UPDATE SET state = excluded.state, response = excluded.response WHERE r.state = 'in_progress'`,
};
const read = {
  name: "floor_read",
  text: "SELECT key, state, response FROM floor_records WHERE key = ANY ($1::text[])",
};

/**
 * @param {string} url
 * @returns {Promise<Contender>}
 */
export async function floorOn(url) {
  const pool = poolOn(url);
  await pool.query(table);
  const byKey = (/** @type {string} */ a, /** @type {string} */ b) => (a < b ? -1 : 1);
  const reserving = gathering(async (/** @type {string[]} */ keys) => {
    await pool.query({ ...reserve, values: [binaryArray(25, keys.toSorted(byKey))] });
    return keys;
  });
  const completing = gathering(async (/** @type {string[]} */ keys) => {
    const bodies = keys.map(() => chargeBytes);
    await pool.query({
      ...complete,
      values: [binaryArray(25, keys.toSorted(byKey)), binaryArray(17, bodies)],
    });
    return keys;
  });
  const reading = gathering(async (/** @type {string[]} */ keys) => {
    const { rows } = await pool.query({ ...read, values: [binaryArray(25, keys)] });
    const found = new Map(rows.map((row) => [row.key, row]));
    return keys.map((key) => found.get(key));
  });
  return {
    async operation(key = randomUUID(), handler) {
      await reserving(key);
      await handler?.();
      await completing(key);
    },
    async replay(key) {
      if ((await reading(key)) === undefined) throw new Error("the key was not there");
    },
    close: () => pool.end(),
  };
}

const flightsMax = 2;

/**
 * What comes while two batches are on their way makes the next one.
 *
 * @template Answer
 * @param {(keys: string[]) => Promise<Answer[]>} send
 * @returns {(key: string) => Promise<Answer | undefined>}
 */
function gathering(send) {
  /** @type {{ key: string, resolve: (answer: Answer | undefined) => void, reject: (error: unknown) => void }[]} */
  const waiting = [];
  let flights = 0;
  let isFlushing = false;
  const flush = () => {
    isFlushing = false;
    while (flights < flightsMax && waiting.length > 0) {
      const batch = waiting.splice(0, Math.ceil(waiting.length / (flightsMax - flights)));
      flights += 1;
      send(batch.map(({ key }) => key))
        .then(
          (answers) => {
            for (const [index, { resolve }] of batch.entries()) resolve(answers[index]);
          },
          (error) => {
            for (const { reject } of batch) reject(error);
          },
        )
        .finally(() => {
          flights -= 1;
          flush();
        });
    }
  };
  return (key) =>
    new Promise((resolve, reject) => {
      waiting.push({ key, resolve, reject });
      if (isFlushing) return;
      isFlushing = true;
      setImmediate(flush);
    });
}

/**
 * An array as Postgres itself writes it down, since text takes a third longer.
 *
 * @param {number} type its number in Postgres
 * @param {readonly (string | Buffer)[]} values
 */
function binaryArray(type, values) {
  const parts = values.map((value) => (typeof value === "string" ? Buffer.from(value) : value));
  const bytes = Buffer.allocUnsafe(20 + parts.reduce((sum, part) => sum + 4 + part.length, 0));
  let at = 0;
  for (const number of [1, 0, type, parts.length, 1]) at = bytes.writeInt32BE(number, at);
  for (const part of parts) {
    at = bytes.writeInt32BE(part.length, at);
    at += part.copy(bytes, at);
  }
  return bytes;
}
