import { randomUUID } from "node:crypto";
import { type Check, type Finding, fail, pass } from "../check.ts";
import { differenceOf, isRefusal, isSuccess, type Operation, type Probe } from "../probe.ts";
import { type Answer, NoAnswerError } from "../wire.ts";

const longLength = 256; // One more than most APIs take.
const veryLongLength = 5000; // Longer than an index entry of any database, and shorter than what servers allow a header.

/** Whatever the key looks like: it is refused, or it works as a key. It is never an error of the server. */
export const keyFormat: readonly Check[] = [
  {
    id: "key-format.empty",
    title: "an empty key is refused, or works as a key",
    run(probe) {
      const { profile } = probe.settings;
      return judged(probe, { ...probe.operation(), key: "" }, (operation) => probe.send(operation), {
        mayBeIgnored: profile.isKeyRequired
          ? undefined
          : `an empty key is no key, and with ${profile.source} keys are optional`,
      });
    },
  },
  {
    id: "key-format.long",
    title: `a key of ${longLength} characters is refused, or works as a key with all of its characters`,
    run: (probe) => longKey(probe, longLength),
  },
  {
    id: "key-format.very-long",
    title: `a key of ${veryLongLength} characters is refused, or works as a key with all of its characters`,
    run: (probe) => longKey(probe, veryLongLength),
  },
  {
    id: "key-format.control-characters",
    title: "a key with a control character is refused, or works as a key",
    run: (probe) =>
      judged(probe, { ...probe.operation(), key: `${randomUUID()}\u0001` }, (operation) =>
        probe.sendRaw(operation),
      ),
  },
  {
    id: "key-format.not-ascii",
    title: "a key with a character outside ASCII is refused, or works as a key",
    run: (probe) =>
      judged(probe, { ...probe.operation(), key: `${randomUUID()}\u00e9` }, (operation) =>
        probe.send(operation),
      ),
  },
  {
    id: "key-format.two-headers",
    title: "two keys in one request are refused, or work as a key",
    run(probe) {
      const keys = [randomUUID(), randomUUID()];
      return judged(probe, probe.operation(), (operation) => probe.send(operation, { keys }));
    },
  },
  {
    id: "key-format.quoted",
    title: "a key in double quotes, as a structured field, is refused, or works as a key",
    async run(probe) {
      const operation = probe.operation();
      const quoted = [`"${operation.key}"`];
      const finding = await judged(probe, operation, (one) => probe.send(one, { keys: quoted }));
      if (finding.outcome !== "pass" || !probe.known.replays) return finding;
      const bare = await probe.send(operation, { keys: [operation.key] });
      if (bare.status >= 500) return fail(`the same key without quotes was answered with ${bare.status}`);
      if (isRefusal(bare))
        return pass(`${finding.reason}; the same key without quotes is refused with ${bare.status}`);
      const isOne = probe.isReplay(bare);
      return pass(
        `${finding.reason}; without quotes it is ${isOne ? "the same key" : "not marked as the same key"}`,
      );
    },
  },
];

interface Allowance {
  /** Why it may be as if the key were not there. */
  readonly mayBeIgnored?: string | undefined;
}

async function judged(
  probe: Probe,
  operation: Operation,
  send: (operation: Operation) => Promise<Answer>,
  { mayBeIgnored }: Allowance = {},
): Promise<Finding> {
  let first: Answer;
  try {
    first = await send(operation);
  } catch (error) {
    if (!(error instanceof NoAnswerError) || error.isTimeout) throw error;
    return pass(`refused without an answer: ${error.message}`);
  }
  if (first.status >= 500)
    return fail(`answered with ${first.status}: whoever sends such a key makes the server fail`);
  if (isRefusal(first)) return pass(`refused with ${first.status}`);
  if (!isSuccess(first))
    return fail(`answered with ${first.status}, which is neither an answer nor a refusal`);
  if (mayBeIgnored !== undefined) return pass(`accepted with ${first.status}: ${mayBeIgnored}`);
  if (!probe.known.replays) return pass(`accepted with ${first.status}; no key works as one here`);
  const difference = differenceOf(first, await send(operation));
  if (difference === undefined)
    return pass(`accepted with ${first.status}, and a retry gets the same answer`);
  return fail(`accepted with ${first.status}, and it does not work as a key: on the retry ${difference}`);
}

/** A database that cuts off what is too long makes one key of two. */
async function longKey(probe: Probe, length: number): Promise<Finding> {
  const start = randomUUID().padEnd(length - 1, "x");
  const operation = { ...probe.operation(), key: `${start}a` };
  const finding = await judged(probe, operation, (one) => probe.send(one));
  const first = probe.exchanges[0]?.answer;
  if (finding.outcome !== "pass" || first?.kind !== "answered" || first.status >= 300 || !probe.known.replays)
    return finding;
  const retry = await probe.send(operation);
  const other = await probe.send({ ...operation, key: `${start}b` });
  const isReplayOfFirst =
    probe.isReplay(other) || (probe.known.tellsApart && differenceOf(retry, other) === undefined);
  if (!isReplayOfFirst) return finding;
  return fail("another key that differs in its last character gets the same answer: long keys are cut off");
}
