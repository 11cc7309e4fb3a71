import { type Check, type Finding, fail, pass, skipped, warn } from "../check.ts";
import { isRefusal, type Probe } from "../probe.ts";
import { type Answer, fieldOf } from "../wire.ts";

export const problems: readonly Check[] = [
  {
    id: "problems.missing-key",
    title: "the refusal of a request without a key is a problem document that tells the truth",
    async run(probe) {
      const answer = await probe.send(probe.operation(), { keys: [] });
      return isRefusal(answer)
        ? judged(probe, answer)
        : skipped(`it was answered with ${answer.status}, and not refused`);
    },
  },
  {
    id: "problems.misuse",
    title: "the refusal of a misused key is a problem document that tells the truth",
    async run(probe) {
      const operation = probe.operation();
      const misused = probe.misused(operation);
      if (misused === undefined) return skipped("give otherBody, a valid body that differs");
      await probe.send(operation);
      const answer = await probe.send(misused);
      return isRefusal(answer)
        ? judged(probe, answer)
        : skipped(`it was answered with ${answer.status}, and not refused`);
    },
  },
];

function judged({ settings: { profile } }: Probe, answer: Answer): Finding {
  const type = fieldOf(answer, "content-type") ?? "";
  const isProblem = /^application\/problem\+json\b/i.test(type);
  const document = jsonIn(answer);
  if (isProblem) return problemFinding(document, answer);
  if (profile.speaksProblems) {
    return warn(
      `the refusal is ${type || "without a Content-Type"}, and no application/problem+json (RFC 9457)`,
    );
  }
  return document === undefined
    ? warn("the refusal is no JSON object, so a program cannot tell what was wrong")
    : pass(`the refusal is a JSON object, as with ${profile.source}`);
}

/** A document that says it is a problem, and is none, misleads every client that knows the format. */
function problemFinding(document: Record<string, unknown> | undefined, { status }: Answer): Finding {
  if (document === undefined)
    return fail("the body is no JSON object, though its Content-Type says that it is a problem");
  const { type, title, detail } = document;
  if (type !== undefined && !(typeof type === "string" && URL.canParse(type, "http://base.invalid"))) {
    return fail("its type is no URI reference");
  }
  if (document.status !== undefined && document.status !== status) {
    return fail(`its status is ${JSON.stringify(document.status)}, and the answer's is ${status}`);
  }
  if (type === undefined || type === "about:blank") {
    return warn(
      "it has no type of its own, so a program cannot tell this refusal from others with its status",
    );
  }
  if (typeof title !== "string" && typeof detail !== "string")
    return warn("it has neither a title nor a detail");
  return pass(`a problem document of type ${type}`);
}

function jsonIn({ body }: Answer): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body.toString("utf8"));
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined;
  }
}
