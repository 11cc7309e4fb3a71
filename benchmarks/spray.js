// One tenant makes a million keys: what do the others notice, and how much of it is stored?
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { Agent, request } from "node:http";
import { answerWhenStarted, ms, times, whole } from "./lib/answer.js";
import { startChild } from "./lib/child.js";
import { openFigures, openLoop } from "./lib/load.js";
import { order } from "./lib/payload.js";
import { query, withDatabase, withPostgres } from "./lib/postgres.js";
import { createProgress } from "./lib/progress.js";
import { numberOf } from "./lib/settings.js";
import { median } from "./lib/statistics.js";

const keys = numberOf("SPRAY_KEYS", 100_000);
const sprayRate = numberOf("SPRAY_RATE", 4_000);
/** All windows are as long: a disk that stops for a moment now and then is in nearly every long one, and in few short ones. */
const windowSeconds = 5;
/** A spray of a million keys takes minutes: several windows of it to one without keep the rest from taking as long again. */
const windowsOfSpray = numberOf("SPRAY_WINDOWS", 1);
/** A thousand requests in a window, so that ten of them are above its p99; of so many that none comes near its own limits. */
const victims = { rate: 200, tenants: 40 };
const limits = {
  newKeys: { max: 100, perMs: 1_000 },
  activeKeys: 5_000,
  storedBytes: 5_000_000,
};
const asked = 1.2;

export function run() {
  return withPostgres((server) => withDatabase(server, measure));
}

/** @param {string} databaseUrl */
async function measure(databaseUrl) {
  /** @type {Awaited<ReturnType<typeof startChild<{ port: number }>>>} */
  const server = await startChild("sprayed-server.js", [databaseUrl, JSON.stringify(limits)]);
  const url = `http://127.0.0.1:${server.message.port}/charges`;
  const sprayer = await startChild("sprayer.js", [url]);
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  // It begins before the first request that counts, and ends after the last.
  const perRound = Math.ceil(sprayRate * windowsOfSpray * (windowSeconds + 0.5));
  const rounds = Math.ceil(keys / perRound);
  const progress = createProgress(rounds * (1 + windowsOfSpray) + 1);
  try {
    // Both are warm before anything counts.
    const warm = spray(sprayer.child, sprayRate);
    await others(url, agent);
    await warm;
    progress.step("warm-up");
    /** @type {Sample[]} */
    const alone = [];
    /** @type {Sample[]} */
    const sprayed = [];
    /** @type {Record<string, number>} */
    const statuses = {};
    let seconds = 0;
    // Side by side in time: a noisy neighbour of this machine hits both alike.
    for (let round = 0; round < rounds; round += 1) {
      alone.push(await others(url, agent));
      progress.step("without the spray");
      const ended = spray(sprayer.child, perRound);
      for (let window = 0; window < windowsOfSpray; window += 1) {
        sprayed.push(await others(url, agent));
        progress.step("under the spray");
      }
      const answer = await ended;
      seconds += answer.seconds;
      for (const [status, count] of Object.entries(answer.statuses)) {
        statuses[status] = (statuses[status] ?? 0) + Number(count);
      }
    }
    return report({ alone, sprayed, statuses, seconds, stored: await storedOf(databaseUrl) });
  } finally {
    agent.destroy();
    for (const { child, exit } of [server, sprayer]) {
      child.kill();
      await exit;
    }
  }
}

/** @typedef {import("./lib/load.js").OpenFigures} Sample */

/**
 * @param {string} url
 * @param {Agent} agent
 */
async function others(url, agent) {
  const latencies = await openLoop({
    rate: victims.rate,
    handlerMs: 0,
    seconds: windowSeconds,
    operation: () => charge(url, agent, `victim-${Math.floor(Math.random() * victims.tenants)}`),
  });
  return openFigures(latencies);
}

/**
 * @param {import("node:child_process").ChildProcess} sprayer
 * @param {number} requests
 * @returns {Promise<{ statuses: Record<string, number>, seconds: number }>}
 */
async function spray(sprayer, requests) {
  sprayer.send({ rate: sprayRate, requests });
  const [answer] = await once(sprayer, "message");
  return answer;
}

/**
 * @param {string} url
 * @param {Agent} agent
 * @param {string} tenant
 */
function charge(url, agent, tenant) {
  return new Promise((resolve, reject) => {
    const headers = {
      "content-type": "application/json",
      "idempotency-key": randomUUID(),
      "x-tenant": tenant,
    };
    request(url, { agent, method: "POST", headers }, (response) => {
      response.resume();
      response.once("end", () =>
        response.statusCode === 201 ? resolve(undefined) : reject(new Error(`${response.statusCode}`)),
      );
    })
      .once("error", reject)
      .end(JSON.stringify(order));
  });
}

/** @param {string} databaseUrl */
async function storedOf(databaseUrl) {
  const [row] = await query(
    databaseUrl,
    "SELECT count(*)::int AS keys, coalesce(sum(pg_column_size(r.*)), 0)::int AS bytes " +
      "FROM latchkey_records AS r WHERE scope = 'sprayer'",
  );
  return { keys: Number(row?.keys), bytes: Number(row?.bytes) };
}

/**
 * @param {{ alone: readonly Sample[], sprayed: readonly Sample[], statuses: Readonly<Record<string, number>>, seconds: number, stored: { keys: number, bytes: number } }} measured
 * @returns {import("./lib/answer.js").Answer}
 */
function report({ alone, sprayed, statuses, seconds, stored }) {
  const of = (/** @type {readonly Sample[]} */ samples, /** @type {"p50" | "p99" | "failed"} */ quantity) =>
    median(samples.map((sample) => sample[quantity]));
  const ratio = of(sprayed, "p99") / of(alone, "p99");
  const sent = Object.values(statuses).reduce((sum, count) => sum + count, 0);
  const requests = (/** @type {readonly Sample[]} */ windows) =>
    whole(windows.length * windowSeconds * victims.rate);
  return {
    tables: [
      {
        title:
          `${whole(sent)} keys of one tenant at ${whole(sent / seconds)}/s, evenly spread, from a process behind all others (nice); ` +
          `others send ${victims.rate}/s (Fastify on Postgres); medians of ${alone.length} windows without and ${sprayed.length} under it`,
        columns: ["the others", "requests", "p50", "p99", "failed"],
        rows: [
          [
            "without the spray",
            requests(alone),
            ms(of(alone, "p50")),
            ms(of(alone, "p99")),
            whole(of(alone, "failed")),
          ],
          [
            "under the spray",
            requests(sprayed),
            ms(of(sprayed, "p50")),
            ms(of(sprayed, "p99")),
            whole(of(sprayed, "failed")),
          ],
        ],
      },
      {
        title: "What became of the spray",
        columns: ["answered 201", "answered 429", "answered otherwise", "keys stored", "cap", "bytes stored"],
        rows: [
          [
            whole(statuses[201] ?? 0),
            whole(statuses[429] ?? 0),
            whole(sent - (statuses[201] ?? 0) - (statuses[429] ?? 0)),
            whole(stored.keys),
            whole(limits.activeKeys),
            whole(stored.bytes),
          ],
        ],
      },
    ],
    bars: [
      {
        what: "the others' p99 under a spray of keys",
        asked: `<= ${asked} x`,
        measured: times(ratio),
        reached: ratio <= asked,
      },
      {
        what: "keys stored of a tenant that sprays",
        asked: `<= ${whole(limits.activeKeys)}`,
        measured: whole(stored.keys),
        reached: stored.keys <= limits.activeKeys,
      },
    ],
  };
}

await answerWhenStarted(import.meta.url, run);
