import type { AuditEntry, AuditQuery } from "./core/audit.ts";
import { ConfigError, UnverifiedError } from "./core/errors.ts";
import { removeNote } from "./core/notes.ts";
import type { DeadMessage, Outbox, OutboxCounts } from "./core/outbox.ts";
import { keepsRequest, type Policy, type PolicyInput, resolvePolicy } from "./core/policy.ts";
import { defaultProblemTypeBase, problem } from "./core/problem.ts";
import type { StoredResponse } from "./core/response.ts";
import type {
  Expiry,
  Reading,
  ReapCounts,
  RecordPage,
  ResolveAnswer,
  Store,
  SweepCounts,
} from "./core/store.ts";
import { Engine } from "./engine/engine.ts";
import type { BreakerState, EventListener } from "./engine/events.ts";
import { limitsNoteName } from "./engine/limits/tally.ts";
import { eventLog } from "./engine/logging.ts";
import { systemRuntime } from "./engine/runtime.ts";
import { checkedTimes, type LatchkeyOptions, type TenantOf, type TenantRequest } from "./latchkey-options.ts";
import { type Busted, type BustRequest, bust } from "./operation/busting.ts";
import {
  type ForgetRequest,
  type Forgotten,
  forgetTenant,
  type TenantRequestBy,
  tenantSaidBy,
  tenantScope,
} from "./operation/forgetting.ts";
import type { Jsonified } from "./operation/json.ts";
import { type ListRequest, list } from "./operation/looking.ts";
import type { Operation } from "./operation/operation.ts";
import { type OutcomeVerdict, type ReconcileHook, resolutionOf } from "./operation/reconciliation.ts";
import { type RequestName, saidBy, speaker, storedId } from "./operation/request-name.ts";
import { type RunRequest, run, runPolicyOf } from "./operation/run.ts";
import { HashedKeys } from "./privacy/hashed-keys.ts";
import { type Shredding, sealedStore } from "./privacy/sealed-store.ts";

/** Somebody knows what became of a request: a provider's webhook, an operator, a report. */
export interface ResolveRequest {
  readonly of: RequestName;
  readonly verdict: OutcomeVerdict;
  /** The attempt that the verdict is about, if it is known; what became of a later one is not settled by it. */
  readonly attempt?: number;
  /** Who says so; kept in the audit trail. */
  readonly by: string;
  /** Checks the signature of whoever says so; nothing is changed unless it answers true. */
  readonly verify?: () => boolean | Promise<boolean>;
}

export interface Health {
  /** The name of the store. */
  readonly store: string;
  /** While it is not `closed`, requests that need the store are answered 503, but for a few. */
  readonly breaker: BreakerState | "off";
  /** Since when, on this process's clock. */
  readonly since: number | undefined;
}

/** The idempotency layer of one process. Made once, mounted on any number of routes. */
export class Latchkey<Tx = unknown> {
  readonly store: Store<Tx>;
  readonly tenant: "single" | TenantOf<TenantRequest>;
  readonly statusPath: string | undefined;
  readonly problemTypeBase: string;
  readonly #expiry: Expiry;
  readonly #shredding: Shredding | undefined;
  readonly #hashedKeys: HashedKeys | undefined;
  /** Of every run that overrides nothing. */
  readonly #runPolicy: Policy;
  readonly #defaults: PolicyInput;
  readonly #reconcile: ReconcileHook | undefined;
  readonly #reconcileByRoute = new Map<string, ReconcileHook>();
  /** By the names of their routes. */
  readonly #policies = new Map<string, Policy>();
  /** @internal */
  readonly engine: Engine;

  constructor(options: LatchkeyOptions<Tx>) {
    const {
      store,
      tenant,
      leaseMs,
      storeTimeoutMs,
      cache,
      limits,
      breaker,
      expiry,
      statusPath,
      problemTypeBase,
      reconcile,
      encryption,
      hashKeys,
      onEvent,
      logger,
      logKeys,
      runtime,
      ...policy
    } = options;
    const { leaseMs: lease, storeTimeoutMs: storeTimeout } = checkedTimes(options);
    const { now, setTimer } = runtime ?? systemRuntime;
    const sealed = sealedStore(store, encryption, {
      now,
      storeTimeoutMs: storeTimeout,
      setTimer,
      onUnreadable: (verb, error) => this.engine.events.emit({ type: "store_error", verb, error }),
    });
    this.#shredding = sealed;
    this.#hashedKeys = hashKeys === undefined ? undefined : new HashedKeys(hashKeys);
    this.store = sealed ?? store;
    this.tenant = tenant;
    this.statusPath = statusPath;
    this.problemTypeBase = problemTypeBase ?? defaultProblemTypeBase;
    this.#expiry = expiry ?? "delete";
    this.#defaults = policy;
    this.#reconcile = asHook(reconcile);
    this.engine = new Engine({
      store: this.store as Store,
      runtime: runtime ?? systemRuntime,
      leaseMs: lease,
      storeTimeoutMs: storeTimeout,
      cache,
      limits,
      breaker,
      nameOf: this.#hashedKeys?.nameOf,
      sealing: sealed,
    });
    if (onEvent !== undefined) this.subscribe(onEvent);
    if (logger !== undefined) this.subscribe(eventLog({ logger, logKeys }, this.engine.runtime));
    this.#runPolicy = runPolicyOf(this.policy());
  }

  /** The policy of a route that overrides some defaults; throws if it cannot be kept. */
  policy(overrides: PolicyInput = {}): Policy {
    const policy = resolvePolicy(this.store.capabilities, this.#defaults, overrides);
    if (policy.onInFlight === "accept" && this.statusPath === undefined) {
      throw new ConfigError(
        'onInFlight is "accept", which answers with the address of the status resource: pass statusPath to ' +
          "createLatchkey and mount statusResource(latchkey) there",
      );
    }
    if (this.#hashedKeys !== undefined && this.#shredding === undefined && keepsRequest(policy)) {
      throw new ConfigError(
        "hashKeys is set, and this policy keeps requests for the workers, with the key in their headers: pass encryption " +
          "too, or keepRequest: false",
      );
    }
    return policy;
  }

  /** Whether requests can be served, for a readiness probe. Asks nobody. */
  health(): Health {
    const { breaker } = this.engine;
    return { store: this.store.name, breaker: breaker?.state ?? "off", since: breaker?.since };
  }

  /** Calls `listener` with everything that happens from now on; returns how to stop it. */
  subscribe(listener: EventListener): () => void {
    return this.engine.events.subscribe(listener);
  }

  /**
   * Runs `work` at most once for each key, outside HTTP: for queue consumers, webhooks, jobs and tools. Every later
   * call with the same key and input gets the result of the first.
   *
   * @example
   * ```ts
   * await latchkey.run({ tenant: "acme", key: message.id, input: message.body }, async (op) => {
   *   return op.atomic("booked", (tx) => book(tx, message.body));
   * });
   * ```
   */
  run<T>(
    request: RunRequest & { readonly policy?: PolicyInput },
    work: (operation: Operation<Tx>) => T | Promise<T>,
  ): Promise<Jsonified<T>> {
    const policy = request.policy === undefined ? this.#runPolicy : runPolicyOf(this.policy(request.policy));
    return run(this.engine, policy, request, work);
  }

  /**
   * Settles an unknown outcome for somebody who knows it. Saying it twice is fine: only the first changes anything,
   * and the answer says what the record is.
   */
  async resolve(request: ResolveRequest): Promise<ResolveAnswer | { readonly kind: "still-unknown" }> {
    const { verdict, verify, attempt } = request;
    const { id, by } = saidBy("resolve", request, this.#hashedKeys?.named);
    if (verify !== undefined && (await verify()) !== true) throw new UnverifiedError();
    const { record } = await this.engine.ask("read", () => this.store.read(id));
    if (record?.state !== "unknown" || (attempt !== undefined && attempt !== record.fence)) {
      return { kind: "not-unknown", state: record?.state ?? "absent" };
    }
    const policy =
      (record.route === undefined ? undefined : this.#policies.get(record.route)) ?? this.policy();
    const resolution = resolutionOf(record, verdict, policy);
    if (resolution === undefined) return { kind: "still-unknown" };
    const answer = await this.engine.ask("resolve", () =>
      this.store.resolve(id, record.fence, resolution, by),
    );
    if (answer.kind === "resolved" && verdict.kind !== "unknown") {
      const { scope, key } = id;
      this.engine.events.emit({ type: "reconciled", scope, key, outcome: verdict.kind, by });
    }
    return answer;
  }

  /**
   * Takes the answer of a settled request away: the next request with its key is executed. What is under way, in doubt
   * or half done is refused, and the answer says what to do instead. Saying it twice is fine; say `attempt` too if
   * somebody may have used the key in between.
   *
   * @example
   * ```ts
   * await latchkey.bust({ of: { tenant: "acme", key }, by: "ada", reason: "answered with a wrong price" });
   * ```
   */
  bust(request: BustRequest): Promise<Busted> {
    return bust(this.engine, request, this.#hashedKeys?.named);
  }

  /**
   * Looks through the records, the latest first where the store keeps them so. A page may be short and not be the last:
   * go on with `after: page.next` until that is undefined.
   *
   * @example
   * ```ts
   * const { records } = await latchkey.list({ state: "unknown", tenant: "acme" });
   * ```
   */
  list(request: ListRequest = {}): Promise<RecordPage> {
    return list(this.engine, this.store, request, this.#hashedKeys?.named);
  }

  /** One record, whole, as it is now on the store's clock. Touches nothing. */
  inspect(of: RequestName): Promise<Reading> {
    const id = storedId("inspect", of, this.#hashedKeys?.named);
    return this.engine.ask("read", () => this.store.read(id));
  }

  /** What happened off the happy path: who, when, from what to what, and why. The latest first. */
  audit(query: Partial<AuditQuery> = {}): Promise<readonly AuditEntry[]> {
    const asked = this.#hashedKeys?.query(query) ?? query;
    return this.engine.ask("audit", () => this.store.audit({ limit: pageRows, ...asked }));
  }

  /**
   * Removes everything that is kept about a tenant and is settled: records, messages, audit entries, and what this
   * process remembers. What is under way, in doubt or half done stays and is counted: settle it, and call this again.
   */
  forgetTenant(request: ForgetRequest): Promise<Forgotten> {
    return forgetTenant(this.engine, request, async (tenantScope) => {
      await removeNote(this.store.notes, limitsNoteName(tenantScope));
      await this.#shredding?.shredTenant(tenantScope);
    });
  }

  /**
   * Makes everything that was stored for a tenant until now unreadable, in the live tables and in every later copy of
   * them, by removing the secret that its key is made with: answers, requests, results of phases and messages. Needs
   * `encryption` with a key for each tenant. Stop the tenant's requests a minute before: other processes go on with its
   * secret for that long, and what they store meanwhile cannot be read either. Answers in their `cache` are replayed for
   * up to five minutes.
   */
  async shredTenant(request: TenantRequestBy): Promise<void> {
    const { tenantScope: scope, by } = tenantSaidBy("shredTenant", request);
    const shredding = this.#tenantKeys("shredTenant");
    await this.engine.ask("notes", () => shredding.shredTenant(scope).then(() => true));
    this.engine.forgetAnswers();
    this.engine.events.emit({ type: "forgotten", tenantScope: scope, how: "shredded", by });
  }

  /**
   * Has a tenant's secret sealed with the current key of the ring, so that older ones can be retired. Call it when every
   * process seals with the new key: one that does not would seal it with the old one again.
   */
  async resealTenant({ tenant }: { readonly tenant: string }): Promise<void> {
    const scope = tenantScope("resealTenant", tenant);
    const shredding = this.#tenantKeys("resealTenant");
    await this.engine.ask("notes", () => shredding.resealTenant(scope).then(() => true));
  }

  #tenantKeys(verb: string): Shredding {
    if (this.#shredding?.hasTenantKeys) return this.#shredding;
    throw new ConfigError(
      `latchkey.${verb} needs a key for each tenant: pass encryption: keyRing([…]) to createLatchkey, without perTenant: false`,
    );
  }

  /** Messages that nobody tries to deliver any more, the oldest first. */
  deadLetters(
    options: { readonly limit?: number; readonly after?: string } = {},
  ): Promise<readonly DeadMessage[]> {
    const { outbox } = this;
    return this.engine.ask("outbox", () => outbox.deadLetters({ limit: pageRows, ...options }));
  }

  /** Gives dead messages all of their attempts again; answers with how many there were. */
  requeue(request: { readonly ids: readonly string[]; readonly by: string }): Promise<number> {
    const { outbox } = this;
    const by = speaker("requeue", request.by);
    return this.engine.ask("outbox", () => outbox.requeue(request.ids, by));
  }

  /** How much waits to be delivered, and for how long. */
  outboxCounts(): Promise<OutboxCounts> {
    const { outbox } = this;
    return this.engine.ask("outbox", () => outbox.counts());
  }

  /** @internal Removes delivered messages that were kept for their reference. */
  async pruneMessages(options: { readonly limit: number; readonly retentionMs: number }): Promise<number> {
    const { outbox } = this.store;
    return outbox === undefined ? 0 : this.engine.ask("outbox", () => outbox.prune(options));
  }

  /** @internal */
  get outbox(): Outbox {
    const { outbox } = this.store;
    if (outbox === undefined) {
      throw new ConfigError(
        `the ${this.store.name} store has no outbox, because it has no transactions: use sqliteStore, postgresStore, mysqlStore or dynamodbStore`,
      );
    }
    return outbox;
  }

  /** @internal Remembers a route: whom to ask about its unknown outcomes, and by what rules they are settled. */
  registerRoute(policy: Policy, hook: unknown): void {
    const { name: route } = policy;
    const reconcile = asHook(hook);
    if (route !== undefined) this.#policies.set(route, policy);
    if (reconcile === undefined) return;
    if (route === undefined) {
      throw new ConfigError(
        "a route with a reconcile hook needs a name, by which its records find the hook again after a restart: pass name",
      );
    }
    const known = this.#reconcileByRoute.get(route);
    if (known !== undefined && known !== reconcile) {
      throw new ConfigError(`two routes are named "${route}" and have different reconcile hooks: rename one`);
    }
    this.#reconcileByRoute.set(route, reconcile);
  }

  /** @internal */
  reconcileHook(route: string | undefined): ReconcileHook | undefined {
    return (route === undefined ? undefined : this.#reconcileByRoute.get(route)) ?? this.#reconcile;
  }

  /**
   * Ends up to `limit` executions whose process died, each as its `onCrash` says, and accepted requests that nobody
   * executed in time. Run it every few seconds, or start the workers.
   */
  sweep(options: { readonly limit?: number } = {}): Promise<SweepCounts> {
    return this.engine.sweep({
      limit: options.limit ?? maintenanceBatch,
      unclaimed: this.#unclaimedAnswer(),
    });
  }

  /** Removes up to `limit` records past their retention. Run it every minute or so, until it answers zero. */
  reap(options: { readonly limit?: number } = {}): Promise<ReapCounts> {
    return this.engine.reap({ limit: options.limit ?? maintenanceBatch, expiry: this.#expiry });
  }

  /**
   * Waits for what is still being executed (a handler whose client has gone, an outcome that the store has not
   * confirmed), but not for longer than `drainMs`; then stops the heartbeat and gives back what the store opened. Call
   * it after the server has stopped.
   */
  async close(options: { readonly drainMs?: number } = {}): Promise<void> {
    await this.engine.drain(options.drainMs ?? drainMsDefault);
    this.engine.close();
    await this.store.close();
  }

  #unclaimedAnswer(): StoredResponse {
    const document = problem("not-claimed", {
      detail:
        "No worker executed the request before it expired. Nothing was done: use a new key for a new request.",
      typeBase: this.problemTypeBase,
    });
    return {
      kind: "full",
      status: document.status,
      headers: [["content-type", "application/problem+json"]],
      body: Buffer.from(JSON.stringify(document)),
    };
  }
}

function asHook(hook: unknown): ReconcileHook | undefined {
  if (hook === undefined || typeof hook === "function") return hook as ReconcileHook | undefined;
  throw new ConfigError("reconcile must be a function that asks the provider and returns a verdict");
}

const pageRows = 100;

const drainMsDefault = 10_000; // What orchestrators leave of their usual thirty seconds after the server has stopped.

const maintenanceBatch = 1000; // Small enough that no statement holds its locks for more than some milliseconds.

/**
 * Makes the idempotency layer.
 *
 * @example
 * ```ts
 * const latchkey = createLatchkey({
 *   store: sqliteStore("./latchkey.db"),
 *   tenant: (request) => accountOf(request.header("authorization")),
 * });
 * ```
 */
export function createLatchkey<Tx = unknown>(options: LatchkeyOptions<Tx>): Latchkey<Tx> {
  return new Latchkey(options);
}
