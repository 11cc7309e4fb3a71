import { type Check, type Finding, fail, pass, warn } from "../check.ts";
import { blindness, differenceOf, isSuccess, type Operation, type Probe } from "../probe.ts";
import { waitStatuses } from "../profiles.ts";
import type { Answer } from "../wire.ts";

export const concurrency: readonly Check[] = [
  {
    id: "concurrency.at-once",
    title: "many requests at once under one key are executed once",
    async run(probe) {
      const operation = probe.operation();
      const answers = await storm(probe, operation);
      const effects = await probe.effectsInTheEnd(operation.key);
      if (effects !== undefined && effects !== 1) {
        return fail(`of ${answers.length} requests under one key ${effects} were executed`);
      }
      const isPutOff = (answer: Answer) => answer.status === 202 && probe.known.status !== 202;
      const successes = answers.filter((answer) => isSuccess(answer) && !isPutOff(answer));
      const strange = answers.find((one) => !isSuccess(one) && !waitStatuses.includes(one.status));
      if (strange !== undefined) return fail(`one of ${answers.length} was answered with ${strange.status}`);
      return judged(probe, answers, successes, await probe.sendUntilSettled(operation));
    },
  },
];

const releaseMs = 2000; // Far more than it takes to connect.

/** All of them are complete at one moment: each has been sent but for its last byte, and then the last bytes follow. */
async function storm(probe: Probe, operation: Operation): Promise<readonly Answer[]> {
  let release = () => {};
  const lastByteAfter = new Promise<void>((resolve) => {
    release = resolve;
  });
  const { concurrency } = probe.settings;
  let sent = 0;
  const onSent = () => {
    sent += 1;
    if (sent === concurrency) release();
  };
  const sending = Array.from({ length: concurrency }, () =>
    probe.send(operation, { onOwnConnection: { lastByteAfter, onSent } }),
  );
  // One that cannot be sent, because the server takes no more connections, must not keep the others waiting.
  const timer = setTimeout(release, releaseMs);
  const ends = sending.map((one) => one.catch(release));
  await Promise.all(ends);
  clearTimeout(timer);
  return Promise.all(sending);
}

function judged(
  probe: Probe,
  answers: readonly Answer[],
  successes: readonly Answer[],
  settled: Answer,
): Finding {
  const [first] = successes;
  if (first === undefined) return fail(`none of ${answers.length} got the answer: all of them were put off`);
  const putOff = answers.length - successes.length;
  const firsts = successes.filter((answer) => !probe.isReplay(answer));
  if (firsts.length === 0)
    return fail("every answer is marked as a replay, though one of them was the first");
  const differing = successes.find((answer) => differenceOf(first, answer) !== undefined);
  if (differing !== undefined) {
    // A store that gives the same answer in other bytes is told off by the checks of replays.
    if (!probe.known.replays && probe.settings.effects !== undefined)
      return pass("the ledger has one effect");
    return fail(`${successes.length} got an answer, and not all the same: ${differenceOf(first, differing)}`);
  }
  const difference = differenceOf(first, settled);
  if (difference !== undefined && probe.known.replays) {
    return fail(`the answer that stayed is not the one that was given: ${difference}`);
  }
  const seen = `${successes.length} of ${answers.length} got one and the same answer, ${putOff} were put off`;
  if (
    successes.length > 1 &&
    probe.settings.effects === undefined &&
    !probe.known.tellsApart &&
    firsts.length > 1
  ) {
    return warn(`${seen}.${blindness(probe)}`);
  }
  return pass(`${seen}.${blindness(probe)}`);
}
