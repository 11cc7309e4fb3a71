import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { topics } from "../../adapters/behaviour/topics.ts";
import { type Case, describeAdapter } from "../../adapters/harness.ts";
import { type PythonUpstream, startPythonUpstream } from "../python-upstream.ts";
import { gatewayFramework } from "./gateway-framework.ts";

let upstream: PythonUpstream;

beforeAll(async () => {
  upstream = await startPythonUpstream();
});

afterAll(() => upstream.stop());

const noOperation =
  "the handler is in another process, and another language: there is no operation to ask for";
const mayHaveRun =
  "half an answer may be that of a request that was executed, so nothing is tried again: see faults.test.ts";

/** What a service behind a proxy cannot have, and why. */
const exemptions: Readonly<Record<string, string>> = {
  "JSON that the parser refuses is answered by it, and wedges nothing":
    "there is no parser: the service parses, and its failure is its answer",
  "the status resource answers 410 once the answer has expired": noOperation,
  "the attempt is counted, so that a handler can look before it leaps": noOperation,
  "a handler that fails after its time is up harms nobody": noOperation,
  "a stream that breaks is no answer: its client learns of it, and the retry executes (streaming)":
    mayHaveRun,
  "a stream that breaks is no answer: its client learns of it, and the retry executes (not streaming)":
    mayHaveRun,
  "a handler finds its operation, also after it has awaited": noOperation,
  "requests at the same time each find their own operation": noOperation,
  "a handler that failed half-way goes on where it stopped": noOperation,
  "an answer that was committed with a business write is what the client gets, whatever follows": noOperation,
  "a committed answer is sent although the handler never comes back": noOperation,
  "a resumed handler that was changed meanwhile is told to nobody as done": noOperation,
  "a worker finishes what its client does not come back for": noOperation,
};

describeAdapter(
  gatewayFramework(() => upstream),
  exempted(topics),
);

function exempted(all: Readonly<Record<string, readonly Case[]>>): Record<string, readonly Case[]> {
  return Object.fromEntries(
    Object.entries(all).map(([topic, cases]) => [
      topic,
      cases.map((one) => {
        const gateway = exemptions[one.name];
        return gateway === undefined ? one : { ...one, except: { ...one.except, gateway } };
      }),
    ]),
  );
}

describe("the exemptions", () => {
  it("name cases that exist", () => {
    const names = new Set(Object.values(topics).flatMap((cases) => cases.map(({ name }) => name)));
    expect(Object.keys(exemptions).filter((name) => !names.has(name))).toEqual([]);
  });
});
