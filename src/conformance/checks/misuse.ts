import { type Check, type Finding, fail, pass, skipped, warn } from "../check.ts";
import { blindness, differenceOf, isSuccess, type Probe } from "../probe.ts";
import { misuseStatuses } from "../profiles.ts";
import type { Answer } from "../wire.ts";
import { replayId } from "./replay.ts";

const noOtherBody = skipped("give otherBody, a valid body that differs: without it this cannot be seen");

export const misuse: readonly Check[] = [
  {
    id: "misuse.other-body",
    title: "the same key with another body is refused, and nothing is executed",
    async run(probe) {
      const operation = probe.operation();
      const misused = probe.misused(operation);
      if (misused === undefined) return noOtherBody;
      const first = await probe.send(operation);
      const answer = await probe.send(misused);
      const effects = await probe.effectsInTheEnd(operation.key);
      if (effects !== undefined && effects > 1) {
        return fail(`it was executed: the ledger has ${effects} effects for one key`);
      }
      if (isSuccess(answer)) return accepted(probe, first, answer);
      return refusedWith(probe, answer);
    },
  },
  {
    id: "misuse.first-answer-stays",
    title: "after a misuse the first request still gets the first answer",
    needs: replayId,
    async run(probe) {
      const operation = probe.operation();
      const misused = probe.misused(operation);
      if (misused === undefined) return noOtherBody;
      const first = await probe.send(operation);
      await probe.send(misused);
      const difference = differenceOf(first, await probe.send(operation));
      if (difference !== undefined) return fail(`the misuse took the first answer away: ${difference}`);
      return pass("the first answer is replayed as before");
    },
  },
  {
    id: "misuse.other-path",
    title: "the same key on another path never gets the first one's answer",
    async run(probe) {
      const { otherUrl } = probe.settings;
      if (otherUrl === undefined) return skipped("give otherUrl, another endpoint that takes the same body");
      const operation = probe.operation();
      const first = await probe.send(operation);
      const answer = await probe.send(operation, { url: otherUrl });
      if (answer.status >= 500) return fail(`answered with ${answer.status}`);
      if (!isSuccess(answer)) return pass(`refused with ${answer.status}: keys hold for all paths`);
      if (probe.isReplay(answer)) return fail("it was answered with a replay");
      if (differenceOf(first, answer) !== undefined)
        return pass("it was executed: each path has its own keys");
      return probe.known.tellsApart
        ? fail("it was answered with the first path's answer")
        : warn("both paths answer alike, so nobody can tell whose answer it was");
    },
  },
];

function accepted(probe: Probe, first: Answer, answer: Answer): Finding {
  const isReplay = probe.isReplay(answer) || differenceOf(first, answer) === undefined;
  return isReplay
    ? fail(
        "it was answered with the first request's answer: the client believes that the second one was executed",
      )
    : fail(`it was answered with ${answer.status}, as if it were a request of its own.${blindness(probe)}`);
}

function refusedWith({ settings: { profile } }: Probe, { status }: Answer): Finding {
  if (status === profile.misuseStatus) return pass(`refused with ${status}`);
  if (misuseStatuses.includes(status))
    return warn(`refused with ${status}, where ${profile.source} has ${profile.misuseStatus}`);
  return fail(`answered with ${status}, where ${profile.source} has ${profile.misuseStatus}`);
}
