import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { topics } from "../../adapters/behaviour/topics.ts";
import { type Case, describeAdapter } from "../../adapters/harness.ts";
import { type PythonUpstream, startPythonUpstream } from "../python-upstream.ts";
import { gatewayFramework, type Serving } from "./gateway-framework.ts";

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
  "what is left of a handler that is over has no operation any more": noOperation,
  "a handler that goes on after its time is up finds its operation, and what is left of it does not":
    noOperation,
  "what is kept of an answer may depend on whose it is": noOperation,
};

const bySession = "what a session is, is a function: there is no binding in a configuration";
const toldByNotes = "every call of the store is counted, and a gateway tells the console that it is there";

/** Cases that run on the proxy alone, past the entrance and the configuration, and why. */
const past: Readonly<Record<string, string>> = {
  "from the memory of the process it is the same, as often as it is asked for, until its key is busted":
    "a gateway has no cache",
  "a route's own fingerprint decides what makes two requests the same": "a fingerprint is a function",
  "a tenant function that throws ends in the framework's error path, and nothing is stored":
    "a gateway has no function that could throw: see tenants.test.ts for keys that cannot be fetched",
  "a key answers the session that made it, and is another request to every other one": bySession,
  "a key that is in use by one session cannot be joined by another": bySession,
  "a request without the session that its route asks for is refused, and nothing runs": bySession,
  "the status resource shows a session its own requests, and of others nothing": bySession,
  "a worker finishes what a session began, and nobody else does by posing as one": bySession,
  "a request without a key costs nothing where no key is required": toldByNotes,
  "methods that are not protected pass untouched, with a key or without": toldByNotes,
  "requests that are sent without waiting are answered in their order":
    "the entrance executes them one after another, and the first of them waits for the second: see pipelining.test.ts",
  "accept: a worker that comes in another tenant's name executes nothing":
    "whoever has no header is nobody to a gateway, and never a tenant of all others",
};

/** Cases that tell callers apart, and by what the gateway does. */
const callers: Readonly<Record<string, string>> = {
  "a caller without a name is refused": "header:X-Tenant",
  "a key never answers across tenants": "header:X-Tenant",
  "equal bodies under different keys, of one tenant or of two, all execute": "header:X-Tenant",
  "a route names its tenant from the framework's own request": "header:X-Api-Key",
  "accept: the request is kept, answered 202, executed by a worker, and asked for at its address":
    "header:X-Tenant",
  "accept: a worker whose requests are not let in is told what to look at": "header:X-Tenant",
};

let serving: Serving = { options: {}, by: "single" };

describeAdapter(
  gatewayFramework(
    () => upstream,
    () => serving,
  ),
  Object.fromEntries(
    Object.entries(topics).map(([topic, cases]) => [topic, cases.map((one) => remembering(exempted(one)))]),
  ),
);

function exempted(one: Case): Case {
  const gateway = exemptions[one.name];
  return gateway === undefined ? one : { ...one, except: { ...one.except, gateway } };
}

/** The same case, whose options are known to the framework as they were said. */
function remembering(one: Case): Case {
  return {
    ...one,
    run(trial) {
      const start = trial.start.bind(trial);
      trial.start = (options = {}) => {
        serving = { options, by: one.name in past ? "past" : (callers[one.name] ?? "single") };
        return start(options);
      };
      return one.run(trial);
    },
  };
}

describe("the exemptions", () => {
  it("name cases that exist", () => {
    const names = new Set(Object.values(topics).flatMap((cases) => cases.map(({ name }) => name)));
    const named = [exemptions, past, callers].flatMap((table) => Object.keys(table));
    expect(named.filter((name) => !names.has(name))).toEqual([]);
  });
});
