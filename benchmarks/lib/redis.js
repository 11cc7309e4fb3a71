// The least that reserves and completes on Redis at all, one script call for each step, as most do it.
import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { chargeBytes } from "./payload.js";

const reserveScript = `
if redis.call('EXISTS', KEYS[1]) == 1 then return redis.call('HMGET', KEYS[1], 'state', 'response') end
redis.call('HSET', KEYS[1], 'state', 'in_progress', 'fingerprint', ARGV[1], 'owner', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1`;

const completeScript = `
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'state', 'completed', 'response', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1`;

const fingerprint = "a".repeat(64);
const retentionMs = String(24 * 3_600_000);

/**
 * @param {string} url
 * @param {import("ioredis").RedisOptions} [options]
 * @returns {Promise<import("./contenders.js").Contender>}
 */
export async function plainScripts(url, options = {}) {
  const client = new Redis(url, options);
  const [reserve, complete] = await Promise.all(
    [reserveScript, completeScript].map((script) => client.script("LOAD", script)),
  );
  const call = async (
    /** @type {unknown} */ sha,
    /** @type {string} */ key,
    /** @type {(string | Buffer)[]} */ args,
  ) => {
    const answer = await client.evalsha(String(sha), 1, `plain:${key}`, ...args);
    if (answer !== 1) throw new Error(`a script answered ${answer}`);
  };
  return {
    async operation(key = randomUUID(), handler) {
      const owner = randomUUID();
      await call(reserve, key, [fingerprint, owner, retentionMs]);
      await handler?.();
      await call(complete, key, [owner, chargeBytes, retentionMs]);
    },
    replay: (key) => client.evalsha(String(reserve), 1, `plain:${key}`, fingerprint, "", retentionMs),
    async close() {
      client.disconnect();
    },
  };
}
