import { bufferOf } from "../core/bytes.ts";
import { ConfigError, LatchkeyError, OperationRefusedError, StoreError } from "../core/errors.ts";
import { fingerprintSelection } from "../core/fingerprint.ts";
import { keyLengthMax, keyTimeMs } from "../core/key.ts";
import { personalDataIn } from "../core/personal-key.ts";
import type { Policy } from "../core/policy.ts";
import { timelinessOf } from "../core/request-time.ts";
import type { HeaderPair, StoredResponse } from "../core/response.ts";
import { isTenant, scopeOf } from "../core/scope.ts";
import { isPromiseLike } from "../core/when-known.ts";
import type { Engine } from "../engine/engine.ts";
import type { Execution } from "../engine/execution.ts";
import type { Outcome, Settled } from "../engine/outcome.ts";
import { recall } from "../engine/recall.ts";
import { wallTime } from "../engine/runtime.ts";
import type { Arrival, Verdict } from "../engine/verdict.ts";
import { fromJsonText, type Jsonified, toJsonText } from "./json.ts";
import { currentOperation, type Operation, operationIsOver, runOperation } from "./operation.ts";
import { plainCopy } from "./plain-copy.ts";

/** An operation outside HTTP: a message from a queue, a webhook, a job. */
export interface RunRequest {
  /** On whose behalf. */
  readonly tenant: string;
  /** What makes a repetition the same: the id of the message, the job, the event. */
  readonly key: string;
  /** What the operation is about, as JSON. The same key with another input is refused. */
  readonly input?: unknown;
  /**
   * When it was first asked for, in milliseconds since 1970: the time of the message, the event. Needed only where late
   * arrivals are refused and the key is no UUIDv7.
   */
  readonly sentAt?: number;
}

/** The same policy outside HTTP: nobody could answer later for work that is a function of this process. */
export function runPolicyOf(policy: Policy): Policy {
  const onInFlight = policy.onInFlight === "accept" ? "wait" : policy.onInFlight;
  return { ...policy, keepRequest: false, onInFlight };
}

/**
 * Runs `work` at most once for each key, and gives every later call the result of the first. The policy is one of
 * `runPolicyOf`.
 */
export function run<Tx, T>(
  engine: Engine,
  policy: Policy,
  request: RunRequest,
  work: Work<Tx, T>,
): Promise<Jsonified<T>> {
  // One promise for all of it: each costs as much as much of what is done in between.
  return new Promise((resolve, reject) => {
    const arrival = arrivalOf(policy, request);
    const verdict = isLate(engine, policy, request) ? recalled(engine, arrival) : engine.arrive(arrival);
    const act = (known: Verdict) => {
      try {
        if (known.kind === "execute") execute(known.execution, work, resolve, reject);
        else resolve(answerTo<T>(known));
      } catch (error) {
        reject(error);
      }
    };
    if (isPromiseLike(verdict)) verdict.then(act, reject);
    else act(verdict);
  });
}

type Work<Tx, T> = (operation: Operation<Tx>) => T | Promise<T>;

function arrivalOf(policy: Policy, request: RunRequest): Arrival {
  const { tenant, key, input } = checked(request);
  const personal = policy.personalKeys === "refuse" ? personalDataIn(key) : undefined;
  if (personal !== undefined) {
    throw new ConfigError(
      `the key of latchkey.run looks like it holds personal data (${personal}): use the id of a message or a job, or ` +
        'personalKeys: "allow"',
    );
  }
  const name = policy.name ?? "";
  const fingerprint = fingerprintSelection({ method, path: name, selection: input ?? null });
  if (fingerprint.kind === "refused") {
    throw new ConfigError(
      `the input of latchkey.run cannot be told apart from another: ${fingerprint.reason}`,
    );
  }
  const scope = scopeOf({ tenant, policy: policy.scope, method, path: name });
  return { scope, key, fingerprint: fingerprint.fingerprint, policy, route: policy.name, tenant };
}

/** What a caller gets for whom nothing is executed; throws what it is refused with. */
function answerTo<T>(verdict: Exclude<Verdict, { kind: "execute" }>): Jsonified<T> {
  switch (verdict.kind) {
    case "unprotected":
      throw new StoreError("the store did not answer, and an operation outside HTTP is not run without it");
    case "storeDown":
      throw new StoreError("the store did not answer: nothing was executed, try again");
    case "limited":
      throw refused("rate-limited", "this tenant has used up its limits", verdict.refusal.retryAfterMs);
    case "replay":
      return resultOf<T>(verdict.response);
    case "inFlight":
    case "accepted":
      throw refused("in-flight", "this operation is being executed elsewhere", verdict.retryAfterMs);
    case "mismatch":
      throw refused("key-reused", "this key was used for another input");
    case "absent":
      throw refused("key-reused", "this key is not there");
    case "unknown":
      throw refused("outcome-unknown", "it is not known yet whether this was executed", verdict.retryAfterMs);
    default:
      return verdict satisfies never;
  }
}

/** By the time of the message or of the key: there are no headers here. */
function isLate(engine: Engine, policy: Policy, { key, sentAt }: RunRequest): boolean {
  if (policy.lateArrivals === "allow") return false;
  const at = sentAt ?? keyTimeMs(key);
  const timeliness =
    typeof at !== "number" || Number.isNaN(at)
      ? undefined
      : timelinessOf(at, wallTime(engine.runtime), policy);
  if (timeliness === undefined || timeliness === "future") {
    const what = timeliness === undefined ? "does not say when it was asked for" : "is from the future";
    throw new OperationRefusedError(
      "request-time-invalid",
      `this operation ${what}, and late ones are refused: pass sentAt, or a UUID version 7 as its key`,
    );
  }
  return timeliness === "late";
}

async function recalled(engine: Engine, arrival: Arrival): Promise<Verdict> {
  const verdict = await recall(engine, arrival);
  if (typeof verdict !== "string") return verdict;
  throw new OperationRefusedError(
    "late-arrival",
    "this operation is too old to be run, and nothing is kept from which it could be told whether it was",
  );
}

/** The place that a method has in an HTTP request's fingerprint and scope. */
const method = "RUN";

/** Resolves with the result, or as soon as nobody waits for it any more: its time is up, or its lease is lost. */
function execute<Tx, T>(
  execution: Execution,
  work: Work<Tx, T>,
  resolve: (result: Jsonified<T>) => void,
  reject: (error: unknown) => void,
): void {
  const settle = (outcome: Outcome, conclude: (settled: Settled) => void) => {
    try {
      const settled = execution.settle(outcome);
      if (isPromiseLike(settled)) settled.then(conclude, reject);
      else conclude(settled);
    } catch (error) {
      reject(error);
    } finally {
      // Not earlier: what the policy makes of an outcome may ask whose it is.
      operationIsOver(execution);
    }
  };
  const conclude = (settled: Settled) => {
    try {
      resolve(outcomeOf<T>(settled));
    } catch (error) {
      reject(error);
    }
  };
  const failed = (error: unknown) =>
    settle({ kind: "threw", error, response: failure(error) }, (settled) => {
      // Its answer was committed before it threw, and is what every later call gets.
      if (settled.kind === "stored" && settled.response.status === doneStatus) conclude(settled);
      else reject(error);
    });
  const answered = (result: T) => {
    let response: StoredResponse;
    let copy: Jsonified<T> | undefined;
    try {
      copy = plainCopy(result);
      response = json(doneStatus, toJsonText(copy ?? result, "the result of latchkey.run"));
    } catch (error) {
      failed(error);
      return;
    }
    settle({ kind: "answered", response }, (settled) => {
      // What was written down need not be read to be known; unless something else was, in a phase.
      if (copy !== undefined && settled.kind === "stored" && settled.response === response) resolve(copy);
      else conclude(settled);
    });
  };
  execution.onGivenUp = conclude;
  runOperation(execution, () => {
    try {
      const result = work(currentOperation<Tx>());
      if (isPromiseLike(result)) result.then(answered, failed);
      else answered(result);
    } catch (error) {
      failed(error);
    }
  });
}

function outcomeOf<T>(settled: Settled): Jsonified<T> {
  switch (settled.kind) {
    case "stored":
      return resultOf<T>(settled.response);
    case "suspended":
      throw refused("outcome-unknown", "it is not known whether this was executed", settled.retryAfterMs);
    case "lost":
      throw refused("lease-lost", "another process has taken this operation over", 1000);
    case "timedOut":
      throw refused("execution-timeout", "the operation took too long", 1000);
    case "storeDown":
      throw new StoreError(
        "the operation ran, and its result could not be stored yet: ask again with the same key",
      );
    case "released":
      throw refused("in-flight", "the operation was given back without a result", 1000);
    default:
      return settled satisfies never;
  }
}

function checked(request: RunRequest): RunRequest {
  const { tenant, key } = request;
  if (!isTenant(tenant)) throw new ConfigError("latchkey.run needs the tenant on whose behalf it runs");
  if (typeof key !== "string" || key === "" || key.length > keyLengthMax || !/^[ -~]*$/.test(key)) {
    throw new ConfigError(`latchkey.run needs a key of 1 to ${keyLengthMax} printable ASCII characters`);
  }
  return request;
}

const doneStatus = 200;
const failedStatus = 500;

function failure(error: unknown): StoredResponse {
  return json(
    failedStatus,
    JSON.stringify({ message: error instanceof Error ? error.message : String(error) }),
  );
}

function json(status: number, text: string): StoredResponse {
  return { kind: "full", status, headers: jsonHeaders, body: Buffer.from(text) };
}

const jsonHeaders: readonly HeaderPair[] = [["content-type", "application/json"]];

/** What was stored, which is what every later call gets as well. */
function resultOf<T>(response: StoredResponse): Jsonified<T> {
  if (response.kind === "omitted") throw new StoreError("the result was too large to be stored");
  const text = bufferOf(response.body).toString();
  if (response.status >= 400) {
    const { message } = JSON.parse(text) as { message: string };
    throw new LatchkeyError("operation-failed", message);
  }
  const isJson =
    response.headers === jsonHeaders ||
    response.headers.some(([name, value]) => name === "content-type" && /json/.test(value));
  return isJson ? fromJsonText<T>(text) : (text as Jsonified<T>);
}

function refused(
  code: OperationRefusedError["code"],
  what: string,
  retryAfterMs?: number,
): OperationRefusedError {
  const then =
    retryAfterMs === undefined ? "use another key for another input" : "call it again with the same key";
  return new OperationRefusedError(
    code,
    `${what}: ${then}`,
    retryAfterMs === undefined ? {} : { retryAfterMs },
  );
}
