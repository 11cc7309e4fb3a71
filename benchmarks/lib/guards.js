// Latchkey with nothing that guards or observes, with metrics alone, and with everything.
import { createHash } from "node:crypto";
import { createLatchkey, keyRing } from "latchkey";
import { memoryStore } from "latchkey/memory";
import { instrument } from "latchkey/opentelemetry";
import { migrate, postgresStore } from "latchkey/postgres";
import { prometheusMetrics } from "latchkey/prometheus";
import { poolOn } from "./contenders.js";

/** @typedef {"unguarded" | "metrics" | "guarded"} Guards */
/** @typedef {`latchkey-${"memory" | "postgres"}-${Guards}`} Guarded */

/** Sent to every server: the client does the same work whatever the server looks at. */
export const callerHeaders = {
  "x-tenant": "acme",
  "x-session": "session-1",
  "idempotency-first-sent": `@${Math.floor(Date.now() / 1000)}`,
};

/** Long enough that no request of a benchmark is late. */
const retentionMs = 600_000;

/**
 * @param {string} name
 * @returns {name is Guarded}
 */
export function isGuarded(name) {
  return /^latchkey-(memory|postgres)-(unguarded|metrics|guarded)$/.test(name);
}

/**
 * What a route says; a key that is tied to a session is said there.
 *
 * @param {string} name
 */
export function guardedRoute(name) {
  if (!name.endsWith("-guarded")) return {};
  return {
    binding: (/** @type {import("fastify").FastifyRequest} */ request) =>
      header(request.headers["x-session"]),
  };
}

/**
 * @param {Guarded} name
 * @param {string | undefined} databaseUrl
 */
export async function guardedLatchkey(name, databaseUrl) {
  const [, store, guards] = /** @type {[string, "memory" | "postgres", Guards]} */ (name.split("-"));
  const latchkey = createLatchkey({
    store: store === "memory" ? memoryStore() : await postgresOn(databaseUrl ?? ""),
    tenant: (request) => request.header("x-tenant"),
    retentionMs,
    ...features[guards],
  });
  if (guards !== "unguarded") prometheusMetrics(latchkey);
  // Without an SDK, as the library is shipped: what exporters cost is theirs.
  if (guards === "guarded") instrument(latchkey);
  return latchkey;
}

/** @param {string} url */
async function postgresOn(url) {
  const pool = poolOn(url);
  await migrate(pool);
  return postgresStore(pool);
}

const nothing = /** @type {const} */ ({ breaker: false, personalKeys: "allow" });

/** Limits that nobody reaches: what is measured is what it costs to count. */
const unreached = 1_000_000_000;

const secret = (/** @type {string} */ of) => createHash("sha256").update(of).digest();

const silent = () => {};

/** @type {Record<Guards, object>} */
const features = {
  unguarded: nothing,
  metrics: nothing,
  guarded: {
    limits: {
      newKeys: { max: unreached, perMs: 1_000 },
      activeKeys: unreached,
      storedBytes: unreached * 1_000,
    },
    breaker: {},
    personalKeys: "refuse",
    lateArrivals: "reject",
    requestTime: { header: "Idempotency-First-Sent" },
    redact: { paths: ["receipt"] },
    logger: { debug: silent, info: silent, warn: silent, error: silent },
    encryption: keyRing([{ id: "k1", secret: secret("encryption") }]),
    hashKeys: secret("keys"),
  },
};

/** @param {string | string[] | undefined} value */
function header(value) {
  return typeof value === "string" ? value : undefined;
}
