// What is gained on Redis by many operations in one script call, and how soon does a waiting duplicate have its answer?
import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { createLatchkey } from "latchkey";
import { redisStore } from "latchkey/redis";
import { answerWhenStarted, ms, ratioBar } from "./lib/answer.js";
import { startChild } from "./lib/child.js";
import { closedRows, timesAsFast } from "./lib/closed-rows.js";
import { contenderOf, withoutGroupCommit } from "./lib/contenders.js";
import { closedLoop, warmUp } from "./lib/load.js";
import { chargeBytes } from "./lib/payload.js";
import { createProgress } from "./lib/progress.js";
import { plainScripts } from "./lib/redis.js";
import { interleave, medianOf, turns } from "./lib/rounds.js";
import { wakeUp } from "./lib/wake-up.js";

const callers = 64;
const ours = "Latchkey";
const oursSingly = "Latchkey, one script call for each step (groupCommit: false)";
const store = "the store alone, without the engine";
const storeSingly = "the store alone, one script call for each step (groupCommit: false)";
const plain = "bare scripts, one call for each step";

export async function run() {
  const { child, message, exit } = await startChild("servers.js", ["redis"]);
  try {
    return await measure(/** @type {{ redis: string }} */ (message).redis);
  } finally {
    child.disconnect();
    await exit;
  }
}

/**
 * @param {string} url
 * @returns {Promise<import("./lib/answer.js").Answer>}
 */
async function measure(url) {
  const open = (/** @type {object} */ options = {}) =>
    redisStore(new Redis(url, { lazyConnect: true }), options);
  const first = latchkeyOn(open());
  const second = latchkeyOn(open());
  const contenders = {
    [ours]: first,
    [oursSingly]: latchkeyOn(open(withoutGroupCommit)),
    [store]: bareStore(open()),
    [storeSingly]: bareStore(open(withoutGroupCommit)),
    [plain]: await plainScripts(url),
  };
  const plan = Object.keys(contenders).map((contender) => ({ contender, callers }));
  const progress = createProgress(turns(plan.length + 1));
  try {
    await warmUp(Object.values(contenders));
    const samples = await interleave(
      Object.fromEntries(
        Object.entries(contenders).map(([contender, { operation }]) => [
          `${contender}: ${callers}`,
          () => closedLoop({ callers, operation: () => operation() }),
        ]),
      ),
      progress,
    );
    const wakeUps = await interleave({ [ours]: () => wakeUp(first, second) }, progress);
    return report(plan, samples, wakeUps[ours] ?? []);
  } finally {
    for (const { close } of [...Object.values(contenders), second]) await close();
  }
}

/** @param {import("latchkey").Store} store */
function latchkeyOn(store) {
  return contenderOf(createLatchkey({ store, tenant: "single" }));
}

let owners = 0;

/**
 * What a store does of an operation; fingerprint, leases, events and the rest are the engine's.
 *
 * @param {import("latchkey").Store<never>} store
 */
function bareStore(store) {
  return {
    async operation(key = randomUUID()) {
      owners += 1;
      const reservation = await store.reserve({
        scope: "acme",
        key,
        fingerprint: "a".repeat(64),
        owner: `owner-${owners}`,
        leaseMs: 15_000,
        retentionMs: 24 * 3_600_000,
        onCrash: "reconcile",
        reconcileAfterMs: 60_000,
        mode: "execute",
        route: undefined,
        request: undefined,
      });
      if (reservation.kind !== "execute") throw new Error(`a new key was answered ${reservation.kind}`);
      await store.settle(reservation.lease, {
        kind: "complete",
        response: { kind: "full", status: 201, headers: [], body: chargeBytes },
        retentionMs: 24 * 3_600_000,
      });
    },
    close: () => store.close(),
  };
}

/**
 * @param {readonly { contender: string, callers: number }[]} plan
 * @param {Record<string, import("./lib/load.js").ClosedSample[]>} samples
 * @param {{ p50: number, p99: number }[]} wakeUps
 * @returns {import("./lib/answer.js").Answer}
 */
function report(plan, samples, wakeUps) {
  const p50 = medianOf(wakeUps, "p50");
  return {
    tables: [
      {
        title: `Fresh operations per second on one Redis (ioredis, appendonly yes, reserve + complete, ${chargeBytes.length}-byte responses)`,
        columns: ["contender", "callers", "per second", "p50", "p99", "CPU per operation", `${ours}, is`],
        rows: closedRows(plan, samples, ours),
      },
      {
        title: "From the commit until a waiting duplicate in another process has its answer (Redis)",
        columns: ["p50", "p99"],
        rows: [[ms(p50), ms(medianOf(wakeUps, "p99"))]],
      },
    ],
    bars: [
      ...[
        { what: "itself with one script call for each step", of: oursSingly, by: ours },
        { what: "the store alone: itself with one script call for each step", of: storeSingly, by: store },
        { what: "bare scripts, one call for each step", of: plain, by: ours },
      ].map(({ what, of, by }) =>
        ratioBar(`Redis, ${callers} callers: ${what}`, {
          rate: timesAsFast(samples, { ours: by, contender: of, callers }),
          of: 1,
          atLeast: 2.3,
        }),
      ),
      { what: "a waiter wakes on Redis, p50", asked: "<= 1 ms", measured: ms(p50), reached: p50 <= 1 },
    ],
    notes: [
      "The bare scripts keep a fingerprint, an owner and an answer, and nothing else: no fence, no lease that runs out, no list by which a worker finds what died. " +
        "They are the floor of what one call for each step costs; what gathering gains is seen in Latchkey next to itself.",
    ],
  };
}

await answerWhenStarted(import.meta.url, run);
