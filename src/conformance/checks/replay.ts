import { setTimeout as delay } from "node:timers/promises";
import { type Check, type Finding, fail, pass, warn } from "../check.ts";
import {
  blindness,
  differenceOf,
  isMarkedReplayed,
  isSuccess,
  type Operation,
  type Probe,
  type SendOptions,
} from "../probe.ts";
import { type Answer, fieldOf } from "../wire.ts";

/** A plain retry: what many other checks take for granted. */
export const replayId = "replay.same-answer";

export const replay: readonly Check[] = [
  {
    id: replayId,
    title: "a retry with the same key and body gets the same status and the same bytes",
    run: (probe) => repeated(probe, {}),
  },
  {
    id: "replay.marked",
    title: "a replay is marked as one, and a first answer is not",
    needs: replayId,
    async run(probe) {
      const operation = probe.operation();
      const first = await probe.send(operation);
      if (isMarkedReplayed(first)) return fail("the first answer under a new key is marked as a replay");
      return markOf(probe, await probe.send(operation));
    },
  },
  {
    id: "replay.headers",
    title: "a replay has the headers that describe the answer: Content-Type and Location",
    needs: replayId,
    async run(probe) {
      const operation = probe.operation();
      const first = await probe.send(operation);
      const second = await probe.send(operation);
      const lost = ["Content-Type", "Location"].filter(
        (name) => fieldOf(first, name) !== fieldOf(second, name),
      );
      if (lost.length === 0) return pass("they are the same");
      return warn(
        `the replay has another ${lost.join(" and another ")}, or none, so a client that reads it is misled`,
      );
    },
  },
  {
    id: "replay.after-pause",
    title: "a retry after a pause gets the same answer",
    needs: replayId,
    run: (probe) => repeated(probe, { onOwnConnection: {} }, () => delay(probe.settings.pauseMs)),
  },
  {
    id: "replay.other-connection",
    title: "a retry over another connection gets the same answer",
    needs: replayId,
    run: (probe) => repeated(probe, { onOwnConnection: {} }),
  },
  {
    id: "replay.other-headers",
    title: "a retry gets the same answer though headers differ that are no part of the request's meaning",
    needs: replayId,
    run: (probe) =>
      repeated(probe, {
        headers: {
          "user-agent": "another-client/2.0",
          "x-request-id": "6f1c1f5e-second-attempt",
          traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        },
      }),
  },
];

async function repeated(probe: Probe, how: SendOptions, between = async () => {}): Promise<Finding> {
  const operation = probe.operation();
  const first = await probe.send(operation);
  if (!isSuccess(first))
    return fail(`the first request was answered with ${first.status}, though others like it were not`);
  await between();
  return judged(probe, operation, first, await probe.send(operation, how));
}

async function judged(probe: Probe, { key }: Operation, first: Answer, second: Answer): Promise<Finding> {
  const effects = await probe.effectsInTheEnd(key);
  const difference = differenceOf(first, second);
  if (effects !== undefined && effects !== 1) {
    return fail(
      `the ledger has ${effects} effects for one key${difference === undefined ? "" : `, and ${difference}`}`,
    );
  }
  if (difference !== undefined)
    return fail(`the retry was not answered with the first answer: ${difference}`);
  if (effects === undefined && !probe.known.tellsApart && !probe.isReplay(second)) {
    return warn(`the answers are the same, and nothing marks the second as a replay.${blindness(probe)}`);
  }
  const counted = effects === undefined ? "" : `, and the ledger has ${effects} effect`;
  return pass(`the same status and the same ${first.body.length} bytes${counted}.${blindness(probe)}`);
}

function markOf({ settings: { profile } }: Probe, answer: Answer): Finding {
  const { replayedHeader } = profile;
  if (replayedHeader === undefined) {
    return isMarkedReplayed(answer)
      ? pass("replays are marked")
      : pass(`replays are not marked; ${profile.source} does not ask for it, and clients have to do without`);
  }
  if (/^true$/i.test(fieldOf(answer, replayedHeader) ?? ""))
    return pass(`replays have ${replayedHeader}: true`);
  if (isMarkedReplayed(answer))
    return warn(`replays are marked, but not with ${replayedHeader}, as ${profile.source} does`);
  return fail(`${profile.source} marks replays with ${replayedHeader}: true, and this one is not marked`);
}
