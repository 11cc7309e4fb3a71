// Who is measured on Postgres. An operation is a reservation and a completion with a response of 300 bytes; a replay is
// the answer to a request that has been completed before.
import { randomUUID } from "node:crypto";
import { createLatchkey } from "latchkey";
import { migrate, postgresStore } from "latchkey/postgres";
import pg from "pg";
import { charge, chargeBytes, order } from "./payload.js";
import { query } from "./postgres.js";

/**
 * @typedef {object} Contender
 * @property {(key?: string, handler?: () => Promise<void>) => Promise<unknown>} operation
 * @property {(key: string) => Promise<unknown>} replay
 * @property {() => Promise<void>} close
 */

const connections = 20;

/** @param {string} url */
export function poolOn(url) {
  const pool = new pg.Pool({ connectionString: url, max: connections });
  pool.on("error", () => {}); // An idle connection that breaks matters to nobody but the next statement, which says so.
  return pool;
}

/** Every call its own statement, as before calls were gathered. */
export const withoutGroupCommit = { groupCommit: false };

/** Answers that the process has seen are kept in it; what makes them invalid is pushed to it. */
export const withCache = { store: { listen: true }, latchkey: { cache: {} } };

/**
 * Latchkey as everybody uses it: the public engine on the public store.
 *
 * @param {string} url
 * @param {object} [storeOptions]
 * @param {object} [latchkeyOptions]
 * @returns {Promise<Contender & { wait(key: string): Promise<unknown> }>} `wait` is a duplicate that waits for the answer
 */
export async function latchkeyOn(url, storeOptions = {}, latchkeyOptions = {}) {
  const pool = poolOn(url);
  await migrate(pool);
  const latchkey = createLatchkey({
    ...latchkeyOptions,
    store: postgresStore(pool, storeOptions),
    tenant: "single",
  });
  return contenderOf(latchkey, () => pool.end());
}

/**
 * What everybody does with Latchkey, on whichever store.
 *
 * @param {import("latchkey").Latchkey} latchkey
 * @param {() => Promise<unknown>} [end] what the store does not close
 * @returns {Contender & { wait(key: string): Promise<unknown> }} `wait` is a duplicate that waits for the answer
 */
export function contenderOf(latchkey, end) {
  const mustNotRun = () => {
    throw new Error("a duplicate was executed");
  };
  return {
    operation: (key = randomUUID(), handler) =>
      latchkey.run({ tenant: "acme", key, input: order }, async () => {
        await handler?.();
        return charge;
      }),
    replay: (key) => latchkey.run({ tenant: "acme", key, input: order }, mustNotRun),
    wait: (key) =>
      latchkey.run({ tenant: "acme", key, input: order, policy: { onInFlight: "wait" } }, mustNotRun),
    async close() {
      await latchkey.close();
      await end?.();
    },
  };
}

/** The least that reserves and completes at all, on the least of a table. */
const plainTable =
  "CREATE TABLE IF NOT EXISTS plain_records (key text PRIMARY KEY, state text NOT NULL, response bytea)";
const plainReserve =
  "INSERT INTO plain_records (key, state) VALUES ($1, 'in_progress') ON CONFLICT DO NOTHING RETURNING key";
const plainComplete =
  "UPDATE plain_records SET state = 'completed', response = $2 " +
  "WHERE key = $1 AND state = 'in_progress' RETURNING key";
const plainReplay = "SELECT state, response FROM plain_records WHERE key = $1";

/**
 * The plain pool: two statements, and nothing of Latchkey.
 *
 * @param {string} url
 * @param {{ isPrepared?: boolean }} [options]
 * @returns {Promise<Contender>}
 */
export async function plainPool(url, { isPrepared = false } = {}) {
  const pool = poolOn(url);
  await pool.query(plainTable);
  const ask = async (
    /** @type {string} */ name,
    /** @type {string} */ text,
    /** @type {unknown[]} */ values,
  ) => {
    const { rowCount } = await pool.query(isPrepared ? { name, text, values } : { text, values });
    if (rowCount !== 1) throw new Error(`${name} found ${rowCount} rows`);
  };
  return {
    async operation(key = randomUUID(), handler) {
      await ask("reserve", plainReserve, [key]);
      await handler?.();
      await ask("complete", plainComplete, [key, chargeBytes]);
    },
    replay: (key) => ask("replay", plainReplay, [key]),
    close: () => pool.end(),
  };
}

/** The same two statements for `pgbench`, with keys as long and as random as a UUID. */
export const pgbenchScript = `\\set n random(1000000000000000000, 9223372036854775807)
${plainReserve.replace("$1", ":n::text || '-4a7c-9e2b-1234567'")};
${plainComplete.replace("$1", ":n::text || '-4a7c-9e2b-1234567'").replace("$2", `decode('${chargeBytes.toString("hex")}', 'hex')`)};
`;

export const preparePgbench = (/** @type {string} */ url) => query(url, plainTable);
