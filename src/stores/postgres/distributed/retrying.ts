import { setTimeout as sleep } from "node:timers/promises";
import { isConflict } from "../errors.ts";

/**
 * Carries something out again that lost against another transaction. These engines refuse it where Postgres would wait,
 * and all of it was rolled back. Each time it waits for a random part of twice as long, so that a crowd spreads out.
 */
export async function retrying<T>(attempt: () => Promise<T>): Promise<T> {
  for (let failures = 0; ; failures += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (failures === retriesMax || !isConflict(error)) throw error;
      await sleep(Math.random() * Math.min(delayMs * 2 ** failures, delayMsMax));
    }
  }
}

const retriesMax = 12; // Two seconds and a half at most, half of the time within which the engine wants an answer.
const delayMs = 4;
const delayMsMax = 400;
