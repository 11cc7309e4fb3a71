// @node-idempotency on Postgres. Its core is on npm and its Postgres store is not, so a stand-in sends, statement for
// statement and value for value, what that store sends.
import { randomUUID } from "node:crypto";
import { Idempotency } from "@node-idempotency/core";
import { poolOn } from "./contenders.js";
import { charge, order } from "./payload.js";

/** @typedef {import("./contenders.js").Contender} Contender */

const keepMs = 24 * 3_600_000;

/**
 * Its table is UNLOGGED unless it is told otherwise: a crash of the server empties it.
 *
 * @param {string} url
 * @param {{ isLogged: boolean, table: string }} options
 */
async function standInStore(url, { isLogged, table }) {
  const pool = poolOn(url);
  await pool.query(
    `CREATE ${isLogged ? "" : "UNLOGGED"} TABLE ${table} (key varchar(255) PRIMARY KEY,
       created_at timestamptz NOT NULL DEFAULT now(), data text, expires_at timestamptz NOT NULL);
     CREATE INDEX ON ${table} (expires_at)`,
  );
  const upsert = `INSERT INTO ${table} (key, data, expires_at)
    VALUES ($1, $2, now() + $3 * interval '1 millisecond')
    ON CONFLICT (key) DO UPDATE SET data = excluded.data, expires_at = excluded.expires_at`;
  const insert = `${upsert} WHERE ${table}.expires_at < now() RETURNING key, expires_at`;
  const select = `SELECT data FROM ${table} WHERE key = $1 AND expires_at > now()`;
  return {
    async setIfNotExists(/** @type {string} */ key, /** @type {string} */ value, { ttl = keepMs } = {}) {
      const { rowCount } = await pool.query(insert, [key, value, ttl]);
      return rowCount === 1;
    },
    async set(/** @type {string} */ key, /** @type {string} */ value, { ttl = keepMs }) {
      await pool.query(upsert, [key, value, ttl]);
    },
    async get(/** @type {string} */ key) {
      const { rows } = await pool.query(select, [key]);
      return /** @type {string | undefined} */ (rows[0]?.data);
    },
    close: () => pool.end(),
  };
}

const response = { additional: { statusCode: 201 }, body: charge };
const fingerPrint = "f".repeat(64); // As long as the BLAKE2s hash that the core sends.
const begun = JSON.stringify({ status: "IN_PROGRESS", fingerPrint });
const complete = JSON.stringify({ status: "COMPLETE", fingerPrint, response });
const nameOf = (/** @type {string} */ key) => `node-idempotency:POST:/charges:${key}`;

/**
 * The statements alone, without what the core computes around them.
 *
 * @param {string} url
 * @param {{ isLogged: boolean }} options
 * @returns {Promise<Contender>}
 */
export async function nodeIdempotencyStatements(url, { isLogged }) {
  const store = await standInStore(url, { isLogged, table: isLogged ? "peer_logged" : "peer_unlogged" });
  return {
    async operation(key = randomUUID(), handler) {
      if (!(await store.setIfNotExists(nameOf(key), begun))) throw new Error("the key was there before");
      await handler?.();
      await store.set(nameOf(key), complete, {});
    },
    async replay(key) {
      if (await store.setIfNotExists(nameOf(key), begun)) throw new Error("the key was not there");
      JSON.parse((await store.get(nameOf(key))) ?? "");
    },
    close: store.close,
  };
}

/**
 * As its users have it: the core from npm on the stand-in.
 *
 * @param {string} url
 * @returns {Promise<Contender>}
 */
export async function nodeIdempotencyCore(url) {
  const store = await standInStore(url, { isLogged: false, table: "peer_core" });
  const core = new Idempotency(store);
  const request = (/** @type {string} */ key) => ({
    headers: { "idempotency-key": key },
    body: order,
    path: "/charges",
    method: "POST",
  });
  return {
    async operation(key = randomUUID(), handler) {
      if ((await core.onRequest(request(key))) !== undefined) throw new Error("the key was there before");
      await handler?.();
      await core.onResponse(request(key), response);
    },
    async replay(key) {
      if ((await core.onRequest(request(key))) === undefined) throw new Error("the key was not there");
    },
    close: store.close,
  };
}
