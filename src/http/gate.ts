import { boundFingerprint } from "../core/binding.ts";
import { ConfigError } from "../core/errors.ts";
import {
  type FingerprintAnswer,
  fingerprintRequest as fingerprintOfRequest,
  fingerprintSelection,
  type RequestBody,
} from "../core/fingerprint.ts";
import { parseKey } from "../core/key.ts";
import { personalDataIn, personalKeySentence } from "../core/personal-key.ts";
import { keepsRequest, type Policy, type PolicyInput } from "../core/policy.ts";
import type { ProblemCode } from "../core/problem.ts";
import { headerAllowList } from "../core/response.ts";
import { isTenant, scopeOf, tenantScopeOf } from "../core/scope.ts";
import type { StoredRequest } from "../core/stored-request.ts";
import { isPromiseLike, whenKnown } from "../core/when-known.ts";
import type { Refusal } from "../engine/limits/options.ts";
import { recall } from "../engine/recall.ts";
import { wallTime, withTheTurn } from "../engine/runtime.ts";
import type { Arrival as EngineArrival, Verdict } from "../engine/verdict.ts";
import type { Latchkey } from "../latchkey.ts";
import type { TenantOf } from "../latchkey-options.ts";
import type { ReconcileHook } from "../operation/reconciliation.ts";
import { type AnswerContext, type HttpAnswer, problemAnswer } from "./answer.ts";
import { asRecorded, type BindingOf, claimedFingerprint, isBinding } from "./binding.ts";
import { Exchange } from "./exchange.ts";
import { goInside, isInside } from "./inside.ts";
import { type Lateness, latenessOf } from "./lateness.ts";
import { limitedAnswer } from "./limited.ts";
import {
  type BodyReading,
  type FingerprintRequest,
  fingerprintRequest,
  type HttpRequest,
  RequestAbortedError,
} from "./request.ts";
import { isAsSent, storedRequest } from "./stored-request.ts";
import { answerOf } from "./verdict-answer.ts";

/** What a route may say on top of the defaults of `createLatchkey`. */
export interface RoutePolicy<Native> extends PolicyInput {
  /** Who is calling, from the framework's own request. */
  readonly tenant?: TenantOf<Native>;
  /**
   * Ties keys to a session, a token or a certificate: the same key from another one is refused as another request is.
   * Without one the request is refused with 401.
   */
  readonly binding?: BindingOf<Native>;
  /** Selects what makes two requests the same, in place of the whole query and body. Must be a JSON value. */
  readonly fingerprint?: (request: FingerprintRequest) => unknown;
  /** Asked what became of a request whose outcome is unknown; such a route needs a `name`. */
  readonly reconcile?: ReconcileHook;
}

/** What an adapter does with a request. */
export type Arrival =
  /** Not protected: hand it to the handler as it came. */
  | { readonly kind: "pass" }
  | { readonly kind: "answer"; readonly answer: HttpAnswer }
  | { readonly kind: "execute"; readonly exchange: Exchange };

const pass: Arrival = { kind: "pass" };

/** The door of one route: request in, and either an answer or the right to execute. */
export class Gate<Native> {
  readonly policy: Policy;
  readonly #latchkey: Latchkey;
  readonly #tenantOf: TenantOf<HttpRequest> | "single";
  readonly #bindingOf: BindingOf<Native> | undefined;
  readonly #select: RoutePolicy<Native>["fingerprint"];
  readonly #rules: ConstructorParameters<typeof Exchange>[0]["rules"];
  readonly #methods: ReadonlySet<string>;
  readonly #keepsRequest: boolean;
  readonly #latenessOf: ReturnType<typeof latenessOf>;

  constructor(latchkey: Latchkey, route: RoutePolicy<Native> = {}) {
    const { tenant, binding, fingerprint, reconcile, ...overrides } = route;
    if (tenant !== undefined && typeof tenant !== "function") {
      throw new ConfigError(
        'a route\'s tenant must be a function of the request; only createLatchkey takes "single"',
      );
    }
    if (fingerprint !== undefined && typeof fingerprint !== "function") {
      throw new ConfigError(
        "a route's fingerprint must be a function of the request that returns a JSON value",
      );
    }
    if (binding !== undefined && typeof binding !== "function") {
      throw new ConfigError(
        "a route's binding must be a function of the request that returns a session's id",
      );
    }
    this.policy = latchkey.policy(overrides);
    latchkey.registerRoute(this.policy, reconcile);
    this.#latchkey = latchkey;
    this.#tenantOf = tenant === undefined ? latchkey.tenant : (request) => tenant(request.native as Native);
    this.#bindingOf = binding;
    this.#select = fingerprint;
    this.#methods = new Set(this.policy.methods);
    this.#keepsRequest = keepsRequest(this.policy);
    this.#latenessOf = latenessOf(this.policy, () => wallTime(latchkey.engine.runtime));
    this.#rules = {
      allowedHeaders: headerAllowList(this.policy.replayHeaders),
      lastHeaders: [],
      responseBytesMax: this.policy.responseBytesMax,
      streaming: this.policy.streaming,
    };
  }

  /** Cheap, so that an adapter can let other requests through without touching them. */
  protects(method: string): boolean {
    return this.#methods.has(method);
  }

  /**
   * Throws, or rejects, with what the user's own functions throw. Waits for nothing that is already there: on the path of
   * every request each promise is paid for.
   */
  arrive(request: HttpRequest): Arrival | Promise<Arrival> {
    if (!this.protects(request.method)) return pass;
    const { policy } = this;

    // The key comes first: a request with a bad one is refused before anything else looks at it.
    const parsed = parseKey(request.keyFields, policy.keyFormat);
    if (parsed.kind === "missing") {
      if (!policy.required) return pass;
      return this.#refuse(undefined, "key-missing", {
        detail:
          "Add an Idempotency-Key header with a new random value, such as a UUID, and send the same value with every " +
          "retry of this request.",
      });
    }
    if (parsed.kind === "invalid") return this.#refuse(undefined, "key-invalid", { detail: parsed.reason });
    const { key } = parsed;
    const personal = policy.personalKeys === "refuse" ? personalDataIn(key) : undefined;
    if (personal !== undefined) {
      return this.#refuse(undefined, "key-invalid", { detail: personalKeySentence(personal) });
    }
    const { isClaim } = request;
    if (isInside(request.identity)) return pass;

    const tenant = this.#tenantOf === "single" ? "single" : this.#tenantOf(request);
    const sent = { key, isClaim, binding: undefined, isLate: false };
    // Asked in so many words, here and below: `whenKnown` would take a function that nearly no request needs.
    return isPromiseLike(tenant)
      ? Promise.resolve(tenant).then((name) => this.#recognize(request, name, sent))
      : this.#recognize(request, tenant, sent);
  }

  /** The same where no framework answers for errors: then the client is told that it failed. */
  async arriveOrFail(request: HttpRequest): Promise<Arrival> {
    try {
      return await this.arrive(request);
    } catch (error) {
      return this.failed(error);
    }
  }

  #recognize(request: HttpRequest, tenant: string | undefined, sent: Sent): Arrival | Promise<Arrival> {
    if (!isTenant(tenant)) {
      return this.#refuse(sent.key, "tenant-missing", {
        detail:
          "Authenticate, and send the request again with the same key: keys belong to the caller who made them.",
      });
    }

    const { limits } = this.#latchkey.engine;
    if (!limits?.areLookUpsLimited) return this.#bind(request, tenant, sent);
    const tenantScope = tenantScopeOf(this.#scopeOf(tenant, request));
    return whenKnown(limits.lookUp({ tenant, tenantScope, isClaim: sent.isClaim }), (refusal) =>
      refusal === undefined ? this.#bind(request, tenant, sent) : this.#limited(sent.key, refusal),
    );
  }

  #bind(request: HttpRequest, tenant: string, sent: Sent): Arrival | Promise<Arrival> {
    if (this.#bindingOf === undefined) return this.#date(request, tenant, sent);
    return whenKnown(this.#bindingOf(request.native as Native), (binding) => {
      const { key, isClaim } = sent;
      if (isBinding(binding, sent))
        return this.#date(request, tenant, { key, isClaim, binding, isLate: false });
      return this.#refuse(sent.key, "session-missing", {
        detail:
          "Sign in, and send the request again with the same key: keys belong to the session that made them.",
      });
    });
  }

  #date(request: HttpRequest, tenant: string, sent: Sent): Arrival | Promise<Arrival> {
    if (this.#latenessOf === undefined) return this.#read(request, tenant, sent);
    // What a worker comes for is there, and was not late when it came: only that is looked at.
    const { key, isClaim, binding } = sent;
    const lateness = isClaim ? "late" : this.#latenessOf({ key, tenant, request });
    return whenKnown<Lateness, Arrival>(lateness, (known) => {
      if (known === "young") return this.#read(request, tenant, sent);
      if (known === "late") return this.#read(request, tenant, { key, isClaim, binding, isLate: true });
      return this.#refuse(key, known.code, { detail: known.detail });
    });
  }

  #read(request: HttpRequest, tenant: string, sent: Sent): Arrival | Promise<Arrival> {
    const reading = request.body(this.policy.requestBytesMax);
    return isPromiseLike(reading)
      ? reading.then((read) => this.#compare(request, tenant, read, sent))
      : this.#compare(request, tenant, reading, sent);
  }

  #compare(
    request: HttpRequest,
    tenant: string,
    reading: BodyReading,
    sent: Sent,
  ): Arrival | Promise<Arrival> {
    const { policy } = this;
    const { key, isClaim, binding } = sent;
    if (reading.kind === "tooLarge") return { kind: "answer", answer: this.tooLarge(request) };
    const fingerprint = this.#fingerprint(request, reading.body);
    if (fingerprint.kind === "refused") {
      return this.#refuse(key, "body-ambiguous", { detail: ambiguousDetails[fingerprint.reason] });
    }

    const scope = this.#scopeOf(tenant, request);
    const arrival: EngineArrival = {
      scope,
      key,
      fingerprint:
        typeof binding === "string"
          ? boundFingerprint(fingerprint.fingerprint, { scope, key }, binding)
          : fingerprint.fingerprint,
      policy,
      route: policy.name,
      request: this.#keepsRequest ? this.#kept(request, reading.body, tenant) : undefined,
      isClaim,
      tenant,
    };
    if (binding === asRecorded) {
      return claimedFingerprint(this.#latchkey.engine, arrival, arrival.fingerprint).then((recorded) =>
        recorded === undefined
          ? this.#arrivalOf({ kind: "storeDown" }, request, key)
          : this.#ask({ ...arrival, fingerprint: recorded }, request, sent),
      );
    }
    return this.#ask(arrival, request, sent);
  }

  #ask(arrival: EngineArrival, request: HttpRequest, { key, isLate }: Sent): Arrival | Promise<Arrival> {
    if (isLate) return this.#recall(arrival, request);
    const { engine } = this.#latchkey;
    // Requests come in crowds, and what is done for one after the other costs each of them less.
    return withTheTurn(engine.runtime, () => {
      const verdict = engine.arrive(arrival);
      return isPromiseLike(verdict)
        ? verdict.then((known) => this.#arrivalOf(known, request, key))
        : this.#arrivalOf(verdict, request, key);
    });
  }

  /** A late request is not run, but gets what is known of it. */
  async #recall(arrival: EngineArrival, request: HttpRequest): Promise<Arrival> {
    const { engine } = this.#latchkey;
    const recalled = await recall(engine, arrival);
    if (recalled === "late") {
      return this.#refuse(arrival.key, "late-arrival", {
        detail:
          "This request is too old to be run, and nothing is kept from which it could be told whether it was. Find out " +
          "by reading, and use a new key for a new request.",
      });
    }
    const verdict = recalled === "due" ? await engine.arrive(arrival) : recalled;
    return this.#arrivalOf(verdict, request, arrival.key);
  }

  /** The answer to a body that is too large, for frameworks that read it before the request arrives here. */
  tooLarge(request: Pick<HttpRequest, "keyFields">): HttpAnswer {
    this.#tellRefusal("body-too-large");
    const parsed = parseKey(request.keyFields, this.policy.keyFormat);
    return problemAnswer(this.#context(parsed.kind === "key" ? parsed.key : undefined), "body-too-large", {
      detail: `Protected requests may have a body of up to ${this.policy.requestBytesMax} bytes. Nothing was executed.`,
    });
  }

  /**
   * What becomes of a request that could not be let in, because its tenant function threw or the like, where no
   * framework answers for errors. Nothing was reserved.
   */
  failed(error: unknown): Arrival {
    return { kind: "answer", answer: this.failureAnswer(error) };
  }

  failureAnswer(error: unknown): HttpAnswer {
    // The bug must surface, but not by ending the process that serves all the others. A client that went away is none.
    if (!(error instanceof RequestAbortedError)) {
      process.emitWarning(error instanceof Error ? error : String(error));
    }
    return problemAnswer(this.#context(undefined), "handler-failed", {
      detail:
        "The request failed inside the service before it was executed. Send it again with the same key.",
    });
  }

  #arrivalOf(verdict: Verdict, request: HttpRequest, key: string): Arrival {
    switch (verdict.kind) {
      case "execute":
        goInside(request.identity);
        return {
          kind: "execute",
          exchange: new Exchange({
            execution: verdict.execution,
            context: this.#context(key),
            rules: this.#rules,
            events: this.#latchkey.engine.events,
          }),
        };
      case "unprotected":
        return pass;
      default:
        return {
          kind: "answer",
          answer: answerOf(verdict, key, {
            latchkey: this.#latchkey,
            policy: this.policy,
            context: this.#context(key),
            request,
            isBound: this.#bindingOf !== undefined,
          }),
        };
    }
  }

  #fingerprint(request: HttpRequest, body: RequestBody): FingerprintAnswer {
    const { method, path, query } = request;
    if (this.#select !== undefined) {
      const selection = this.#select(fingerprintRequest(request, body));
      return fingerprintSelection({ method, path, selection });
    }
    return fingerprintOfRequest({
      method,
      path,
      query,
      contentType: request.contentType,
      // Whoever decoded the body before has made it what it would be without an encoding.
      contentEncoding: isAsSent(body) ? request.contentEncoding : undefined,
      body,
    });
  }

  #scopeOf(tenant: string, { method, path }: HttpRequest): string {
    return scopeOf({ tenant, policy: this.policy.scope, method, path });
  }

  /** What a worker needs to execute the request again. */
  #kept(request: HttpRequest, body: RequestBody, tenant: string): StoredRequest | undefined {
    const kept = storedRequest(request, body, {
      tenant,
      extraHeaders: this.policy.keepRequestHeaders,
      trace: this.#latchkey.engine.tracing?.current(),
    });
    if (kept === undefined && this.policy.onInFlight === "accept") {
      throw new ConfigError(
        "a request cannot be accepted for later whose body was parsed to something that cannot be sent again: mount " +
          "idempotent before the body parser",
      );
    }
    return kept;
  }

  #context(key: string | undefined): AnswerContext {
    return { policy: this.policy, typeBase: this.#latchkey.problemTypeBase, key };
  }

  #limited(key: string, refusal: Refusal): Arrival {
    return { kind: "answer", answer: limitedAnswer(this.#context(key), refusal) };
  }

  #refuse(key: string | undefined, ...[code, options]: ProblemArguments): Arrival {
    this.#tellRefusal(code);
    return { kind: "answer", answer: problemAnswer(this.#context(key), code, options) };
  }

  /** What the store has decided is told by the engine; this is what never got that far. */
  #tellRefusal(code: ProblemCode): void {
    const { events } = this.#latchkey.engine;
    if (events.areHeard) events.emit({ type: "refused", code });
  }
}

/**
 * What a request said about itself before its caller was known. All members are there from the start: one that is added to
 * a copy of the others was measured to cost as much as a digest.
 */
interface Sent {
  readonly key: string;
  readonly isClaim: boolean;
  /** The session that the key is tied to, where keys are. */
  readonly binding: string | typeof asRecorded | undefined;
  /** Too old to be run. */
  readonly isLate: boolean;
}

type ProblemArguments = [
  code: Parameters<typeof problemAnswer>[1],
  options: Parameters<typeof problemAnswer>[2],
];

const ambiguousDetails: Record<Extract<FingerprintAnswer, { kind: "refused" }>["reason"], string> = {
  "duplicate-member":
    "The JSON body names a member twice, and readers disagree on which one counts. Send each once.",
  "lone-surrogate":
    "The JSON body has half of a surrogate pair in a string, which is not a character. Send valid Unicode.",
  "number-out-of-range":
    "The JSON body has a number that is too large to be represented. Send it as a string.",
  "too-deep": "The JSON body is nested too deeply. Flatten it.",
  "not-a-json-value":
    "The request's parameters are not a JSON value, so it cannot be told whether a retry is the same.",
};
