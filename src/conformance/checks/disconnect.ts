import { setTimeout as delay } from "node:timers/promises";
import { type Check, type Finding, fail, pass, warn } from "../check.ts";
import { blindness, isSuccess, type Operation, type Probe } from "../probe.ts";
import { waitStatuses } from "../profiles.ts";
import { NoAnswerError } from "../wire.ts";

export const disconnect: readonly Check[] = [
  {
    id: "disconnect.once-sent",
    title: "a client that is gone as soon as it has sent, and retries, has it executed once",
    run: (probe) => cutAndRetried(probe, 0),
  },
  {
    id: "disconnect.while-running",
    title: "a client that is gone while the request runs, and retries, has it executed once",
    run: (probe) => cutAndRetried(probe, probe.known.tookMs / 2),
  },
];

async function cutAndRetried(probe: Probe, afterMs: number): Promise<Finding> {
  const operation = await cutOff(probe, afterMs);
  if (operation === undefined)
    return warn("answers come faster than a connection can be cut, so this was not seen");
  // The first one may still run, and whether two at once are executed twice is the business of another check.
  await delay(Math.min(probe.settings.timeoutMs, 100 + 3 * probe.known.tookMs));
  const answer = await probe.sendUntilSettled(operation);
  const effects = await probe.effectsInTheEnd(operation.key);
  if (effects !== undefined && effects > 1) return fail(`the ledger has ${effects} effects for one key`);
  if (waitStatuses.includes(answer.status)) {
    return warn(
      `the retry was still put off with ${answer.status} after ${probe.settings.timeoutMs} ms: it was not executed twice, and the client does not learn its outcome in time`,
    );
  }
  if (!isSuccess(answer)) return fail(`the retry was answered with ${answer.status}`);
  if (effects === 0)
    return fail(
      `the retry was answered with ${answer.status}, and the ledger has no effect: it was not done`,
    );
  if (effects !== undefined) return pass(`the retry got its answer, and the ledger has ${effects} effect`);
  if (probe.isReplay(answer)) return pass(`the retry was answered with a replay.${blindness(probe)}`);
  return warn(
    `the retry got an answer, and it cannot be told whether that was a second execution: give effects`,
  );
}

const triesMax = 4; // Each cuts earlier than the one before: how long a request takes is not the same twice.

/** An operation whose client is gone before it had an answer. */
async function cutOff(probe: Probe, afterMs: number): Promise<Operation | undefined> {
  for (let tried = 0; tried < triesMax; tried += 1) {
    const operation = probe.operation();
    if (await isCut(probe, operation, afterMs / 2 ** tried)) return operation;
  }
  return undefined;
}

async function isCut(probe: Probe, operation: Operation, afterMs: number): Promise<boolean> {
  const cutter = new AbortController();
  try {
    const onSent = () => void setTimeout(() => cutter.abort(), afterMs);
    await probe.send(operation, { onOwnConnection: { cut: cutter.signal, onSent } });
    return false;
  } catch (error) {
    if (error instanceof NoAnswerError && cutter.signal.aborted) return true;
    throw error;
  }
}
