import { type Check, type Finding, fail, pass, skipped } from "../check.ts";
import { differenceOf, isRefusal, type Probe } from "../probe.ts";
import { replayId } from "./replay.ts";

/** Both are allowed, to take it for the same request or for another one. To execute it a second time is not. */
export const jsonEquality: readonly Check[] = [
  {
    id: "json-equality.member-order",
    title: "the same JSON with its members in another order is not executed a second time",
    needs: replayId,
    run: (probe) => respelled(probe, (value) => JSON.stringify(reversed(value))),
  },
  {
    id: "json-equality.whitespace",
    title: "the same JSON with other whitespace is not executed a second time",
    needs: replayId,
    run: (probe) => respelled(probe, (value) => `${JSON.stringify(value, null, 3)}\n`),
  },
];

async function respelled(probe: Probe, spell: (value: unknown) => string): Promise<Finding> {
  const operation = probe.operation();
  const body = spelling(operation.body, spell);
  if (body === undefined) return skipped("the body is no JSON that could be written in another way");
  const first = await probe.send(operation);
  const answer = await probe.send({ ...operation, body });
  const effects = await probe.effectsInTheEnd(operation.key);
  if (effects !== undefined && effects > 1)
    return fail(`it was executed again: the ledger has ${effects} effects`);
  if (isRefusal(answer)) return pass(`it is taken for another request, and refused with ${answer.status}`);
  const difference = differenceOf(first, answer);
  if (difference === undefined) return pass("it is taken for the same request, and gets the first answer");
  return fail(`it is neither the same request nor refused: ${difference}`);
}

function spelling(body: string | undefined, spell: (value: unknown) => string): string | undefined {
  try {
    const spelled = spell(JSON.parse(body ?? ""));
    return spelled === body ? undefined : spelled;
  } catch {
    return undefined;
  }
}

function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([name, member]) => [name, reversed(member)]),
  );
}
