import { asked, offerAtOnce } from "../core/at-once.ts";
import type { AuditEntry, AuditQuery } from "../core/audit.ts";
import { ConfigError, StoreBusyError, StoreRefusedError, UnreadableError } from "../core/errors.ts";
import type { Notes } from "../core/notes.ts";
import type { RecordId, UnknownRecord } from "../core/record.ts";
import type { StoredResponse } from "../core/response.ts";
import { tenantScopeOf } from "../core/scope.ts";
import type {
  Advance,
  Bust,
  BustAnswer,
  Capabilities,
  ClaimOptions,
  Expiry,
  ForgetCounts,
  ForgetOptions,
  HeartbeatAnswer,
  Lease,
  ListQuery,
  PhaseCommit,
  Reading,
  ReapCounts,
  RecordPage,
  RenewAnswer,
  Replay,
  Reservation,
  ReserveRequest,
  Resolution,
  ResolveAnswer,
  Resumable,
  ResumableClaim,
  SettleAnswer,
  Settlement,
  Store,
  SweepCounts,
  TransactAnswer,
  UnknownCounts,
} from "../core/store.ts";
import { whenKnown } from "../core/when-known.ts";
import { overheadBytesMax, type SealingKey } from "./envelope.ts";
import { Foreseen, ForeseenCompletion } from "./foreseen.ts";
import { KeyRing } from "./key-ring.ts";
import { NoteSecrets } from "./note-secrets.ts";
import { Opener } from "./opener.ts";
import { type OnUnreadable, SealedOutbox } from "./sealed-outbox.ts";
import { sealMessage, sealProgress, sealRequest, sealResponse, sealUnclaimed } from "./sealing.ts";
import { shredded, TenantKeys } from "./tenant-keys.ts";
import { TurnEnd } from "./turn-end.ts";

export interface SealedStoreOptions {
  readonly ring: KeyRing;
  /** Of the process, for how long a tenant's secret is kept in memory. */
  readonly now: () => number;
  /** Nobody waits for a reservation for longer; for ever if left out. */
  readonly storeTimeoutMs?: number;
  /** For how long a vault is waited for; as long as it takes if left out. */
  readonly setTimer?: (run: () => void, ms: number, options: { readonly background: boolean }) => () => void;
  readonly onUnreadable: OnUnreadable;
}

/** What can be done about a tenant's secret. */
export interface Shredding {
  /** Whether each tenant has a key of its own. */
  readonly hasTenantKeys: boolean;
  /** Makes everything that was sealed for a tenant unreadable, for good. */
  shredTenant(tenantScope: string): Promise<void>;
  /** Seals a tenant's secret with the current key, if another one has sealed it. */
  resealTenant(tenantScope: string): Promise<void>;
}

/** The store that seals with this ring; undefined if there is none. */
export function sealedStore<Tx>(
  store: Store<Tx>,
  ring: KeyRing | undefined,
  options: Omit<SealedStoreOptions, "ring">,
): SealedStore<Tx> | undefined {
  if (ring === undefined) return undefined;
  if (ring instanceof KeyRing) return new SealedStore(store, { ring, ...options });
  throw new ConfigError("encryption must be made with keyRing([{ id, secret }])");
}

/**
 * Any store, with everything sealed that a client or a handler has said. Whatever cannot be opened is an
 * `UnreadableError`: it is answered with nothing, and nothing is executed because of it.
 */
export class SealedStore<Tx> implements Store<Tx>, Shredding {
  readonly name: string;
  readonly capabilities: Capabilities;
  readonly notes: Notes;
  readonly transact?: NonNullable<Store<Tx>["transact"]>;
  readonly outbox?: SealedOutbox;
  readonly exist?: NonNullable<Store["exist"]>;
  readonly watch?: NonNullable<Store["watch"]>;
  readonly onOwnershipLost?: NonNullable<Store["onOwnershipLost"]>;
  readonly onBusted?: NonNullable<Store["onBusted"]>;
  readonly bustGeneration?: NonNullable<Store["bustGeneration"]>;
  readonly #inner: Store<Tx>;
  readonly #ring: KeyRing;
  readonly #keys: TenantKeys;
  readonly #opener: Opener;
  readonly #onUnreadable: OnUnreadable;
  readonly #bodyBytesMax: number;
  readonly #now: () => number;
  readonly #keyMsMax: number;
  readonly #setTimer: SealedStoreOptions["setTimer"];
  readonly #turnEnd = new TurnEnd();
  readonly #foreseen = new Foreseen((one) => this.#sealedCompletion(one.key, one.id, one));

  constructor(inner: Store<Tx>, options: SealedStoreOptions) {
    const { ring, now, onUnreadable, storeTimeoutMs = Number.POSITIVE_INFINITY } = options;
    this.#now = now;
    this.#keyMsMax = storeTimeoutMs;
    // Secrets that are in the store itself come as late as everything else from there.
    this.#setTimer = ring.tenantSecrets === undefined ? undefined : options.setTimer;
    this.name = inner.name;
    this.notes = inner.notes;
    this.#bodyBytesMax = inner.capabilities.responseBytesMax;
    const responseBytesMax = this.#bodyBytesMax - overheadBytesMax - headersBytes;
    this.capabilities = { ...inner.capabilities, responseBytesMax };
    this.#inner = inner;
    this.#ring = ring;
    const secrets = ring.tenantSecrets ?? new NoteSecrets(inner.notes, ring);
    this.#keys = new TenantKeys({ ring, secrets, now });
    this.#opener = new Opener(ring, this.#keys);
    this.#onUnreadable = onUnreadable;
    const { transact, outbox, exist, watch, onOwnershipLost, onBusted, bustGeneration } = inner;
    // Binding loses the type of a generic method.
    if (transact !== undefined) this.transact = this.#transactIn(transact.bind(inner) as typeof transact);
    if (outbox !== undefined) this.outbox = new SealedOutbox(outbox, this.#opener, onUnreadable);
    if (exist !== undefined) this.exist = exist.bind(inner);
    if (watch !== undefined) this.watch = watch.bind(inner);
    if (onOwnershipLost !== undefined) this.onOwnershipLost = onOwnershipLost.bind(inner);
    if (onBusted !== undefined) this.onBusted = onBusted.bind(inner);
    if (bustGeneration !== undefined) this.bustGeneration = bustGeneration.bind(inner);
  }

  get hasTenantKeys(): boolean {
    return this.#ring.perTenant;
  }

  shredTenant(tenantScope: string): Promise<void> {
    return this.#keys.remove(tenantScope);
  }

  resealTenant(tenantScope: string): Promise<void> {
    return this.#keys.reseal(tenantScope);
  }

  async reserve(request: ReserveRequest): Promise<Reservation> {
    return this.#reserve(request);
  }

  /** As `reserve`, but the answer is as it is stored. */
  reserveSealed(request: ReserveRequest): Reservation | Promise<Reservation> {
    // The key comes first: whoever could not seal an outcome must not begin.
    const key = this.#sealingKey(request);
    if (!(key instanceof Promise)) return this.#reserveWith(key, request);
    const askedAt = this.#now();
    return this.#inTime(key).then((known) => {
      // Whoever asked has gone by now, and what is reserved for nobody ends in doubt.
      if (this.#now() - askedAt < this.#keyMsMax) return this.#reserveWith(known, request);
      throw new StoreBusyError("the secret of a tenant came too late");
    });
  }

  async settle(lease: Lease, settlement: Settlement): Promise<SettleAnswer> {
    return this.#settle(lease, settlement);
  }

  /**
   * What to settle in place of this, which is going to be settled at the end of the turn, as others are. Never throws: what
   * is wrong is learned when it is settled.
   */
  foresee(lease: Lease, settlement: Settlement): Settlement {
    if (settlement.kind !== "complete") return settlement;
    const key = this.#keys.sealingAtOnce(tenantScopeOf(lease.scope));
    return key === undefined ? settlement : this.#foreseen.add(settlement, lease, key);
  }

  static {
    offerAtOnce(SealedStore.prototype.reserve, function (this: SealedStore<unknown>, request) {
      return this.#reserve(request);
    });
    offerAtOnce(SealedStore.prototype.settle, function (this: SealedStore<unknown>, lease, settlement) {
      return this.#settle(lease, settlement);
    });
  }

  renew(leases: readonly Lease[], leaseMs: number): Promise<readonly HeartbeatAnswer[]> {
    return this.#inner.renew(leases, leaseMs);
  }

  async advance(lease: Lease, { progress, onCrash }: Advance): Promise<RenewAnswer> {
    const sealed = sealProgress(await this.#sealingKey(lease), lease, progress);
    return this.#inner.advance(lease, { progress: sealed, onCrash });
  }

  async read(id: RecordId): Promise<Reading> {
    const reading = await this.#inner.read(id);
    return reading.record === undefined
      ? reading
      : { ...reading, record: await this.#opener.record(reading.record) };
  }

  sweep(options: { readonly limit: number; readonly unclaimed: StoredResponse }): Promise<SweepCounts> {
    const unclaimed = sealUnclaimed(this.#ring.currentKey, options.unclaimed);
    return this.#inner.sweep({ ...options, unclaimed });
  }

  async claimResumable(options: ClaimOptions): Promise<ResumableClaim> {
    const { claimed, gaveUp } = await this.#inner.claimResumable(options);
    return { claimed: await this.#readable(claimed, (resumable) => this.#openResumable(resumable)), gaveUp };
  }

  async claimUnknown(options: Omit<ClaimOptions, "attemptsMax">): Promise<readonly UnknownRecord[]> {
    const claimed = await this.#inner.claimUnknown(options);
    return this.#readable(claimed, async (record) => {
      const { progress } = await this.#opener.progress(record, record.progress);
      return { ...record, progress };
    });
  }

  async resolve(id: RecordId, fence: number, resolution: Resolution, by: string): Promise<ResolveAnswer> {
    const sealed = await this.#sealedResolution(id, resolution);
    return this.#inner.resolve(id, fence, sealed, by);
  }

  bust(id: RecordId, bust: Bust): Promise<BustAnswer> {
    return this.#inner.bust(id, bust);
  }

  list(query: ListQuery): Promise<RecordPage> {
    return this.#inner.list(query);
  }

  audit(query: AuditQuery): Promise<readonly AuditEntry[]> {
    return this.#inner.audit(query);
  }

  reap(options: { readonly limit: number; readonly expiry: Expiry }): Promise<ReapCounts> {
    return this.#inner.reap(options);
  }

  forgetTenant(options: ForgetOptions): Promise<ForgetCounts> {
    return this.#inner.forgetTenant(options);
  }

  unknownCounts(): Promise<UnknownCounts> {
    return this.#inner.unknownCounts();
  }

  close(): Promise<void> {
    return this.#inner.close();
  }

  #sealingKey({ scope }: Pick<RecordId, "scope">): SealingKey | Promise<SealingKey> {
    return this.#keys.sealing(tenantScopeOf(scope));
  }

  /** A vault that is late has to fail before the store seems to, which is not to be taken for sick because of it. */
  #inTime(key: Promise<SealingKey>): Promise<SealingKey> {
    const setTimer = this.#setTimer;
    if (setTimer === undefined) return key;
    return new Promise((resolve, reject) => {
      const giveUp = () => reject(new StoreRefusedError("the vault took too long for a tenant's secret"));
      const cancel = setTimer(giveUp, this.#keyMsMax / 2, { background: true });
      key.then(resolve, reject).finally(cancel);
    });
  }

  #reserve(request: ReserveRequest): Reservation | Promise<Reservation> {
    return whenKnown(this.reserveSealed(request), (reservation) =>
      this.openReservation(request, reservation),
    );
  }

  #reserveWith(key: SealingKey, request: ReserveRequest): Reservation | Promise<Reservation> {
    const { request: kept } = request;
    const sealed = kept === undefined ? request : { ...request, request: sealRequest(key, request, kept) };
    return asked(this.#inner, this.#inner.reserve, sealed);
  }

  #settle(lease: Lease, settlement: Settlement): SettleAnswer | Promise<SettleAnswer> {
    if (settlement.kind !== "complete") return asked(this.#inner, this.#inner.settle, lease, settlement);
    if (settlement instanceof ForeseenCompletion) {
      return asked(this.#inner, this.#inner.settle, lease, this.#foreseen.sealed(settlement));
    }
    const key = this.#sealingKey(lease);
    return key instanceof Promise
      ? key.then((known) => this.#completeWith(known, lease, settlement))
      : this.#completeWith(key, lease, settlement);
  }

  #completeWith(
    key: SealingKey,
    lease: Lease,
    completion: Extract<Settlement, { kind: "complete" }>,
  ): SettleAnswer | Promise<SettleAnswer> {
    return this.#turnEnd.soon(() =>
      this.#inner.settle(lease, this.#sealedCompletion(key, lease, completion)),
    );
  }

  /** Opens what `reserveSealed` has answered with. */
  openReservation(request: ReserveRequest, reservation: Reservation): Reservation | Promise<Reservation> {
    switch (reservation.kind) {
      case "replay":
        return whenKnown(
          this.#opener.response(request, reservation.response),
          (response): Replay => ({ ...reservation, response }),
        );
      case "execute":
        return reservation.progress.length === 0 ? reservation : this.#openExecution(request, reservation);
      case "inFlight":
      case "pending":
      case "absent":
      case "mismatch":
      case "unknown":
        return reservation;
      default:
        return reservation satisfies never;
    }
  }

  /** What earlier attempts have done has to be known before the next one may go on; otherwise it is given back. */
  async #openExecution(
    request: ReserveRequest,
    execution: Extract<Reservation, { kind: "execute" }>,
  ): Promise<Reservation> {
    const { lease } = execution;
    try {
      const { progress, isShredded } = await this.#opener.progress(request, execution.progress);
      if (!isShredded) return { ...execution, progress };
    } catch (error) {
      if (!(error instanceof UnreadableError)) throw error;
      const { retentionMs, request: kept } = request;
      await this.#inner.settle(lease, {
        kind: "release",
        reason: "what is recorded of this operation could not be opened by the process that came to it",
        retentionMs,
        ...(kept === undefined ? {} : { resumeAfterMs: unreadableRetryMs }),
      });
      throw error;
    }
    const { reconcileAfterMs } = request;
    const reason = "what is recorded of this operation was made unreadable with everything of its tenant";
    await this.#inner.settle(lease, { kind: "suspend", reason, reconcileAfterMs });
    return { kind: "unknown", retryAfterMs: reconcileAfterMs, discovered: true };
  }

  async #openResumable({ record, request }: Resumable): Promise<Resumable> {
    const opened = await this.#opener.request(record, request);
    const { progress, isShredded } = await this.#opener.progress(record, record.progress);
    if (opened === shredded || isShredded) {
      throw new UnreadableError(
        "a request that waits for a worker was made unreadable with everything of its tenant",
      );
    }
    return { record: { ...record, progress }, request: opened };
  }

  /** One that cannot be opened must not keep the others from being worked on. It is hidden for its back-off. */
  async #readable<T>(claimed: readonly T[], opened: (one: T) => Promise<T>): Promise<T[]> {
    const readable: T[] = [];
    for (const one of claimed) {
      try {
        readable.push(await opened(one));
      } catch (error) {
        this.#onUnreadable("claim", error);
      }
    }
    return readable;
  }

  #transactIn(transact: NonNullable<Store<Tx>["transact"]>): NonNullable<Store<Tx>["transact"]> {
    return async <T>(
      lease: Lease,
      work: (tx: Tx) => T | Promise<T>,
      commit: (result: T) => PhaseCommit,
    ): Promise<TransactAnswer<T>> => {
      // Asked for before the transaction begins, which may keep its connection from answering anything else.
      const key = await this.#sealingKey(lease);
      return transact(lease, work, (result) => this.#sealedCommit(key, lease, commit(result)));
    };
  }

  #sealedCommit(key: SealingKey, lease: Lease, commit: PhaseCommit): PhaseCommit {
    const { progress, response, messages } = commit;
    return {
      ...commit,
      progress: sealProgress(key, lease, progress),
      messages: messages.map((message) => {
        // A message is its operation's. One of another tenant's could not be opened with this one's key.
        const isOwn = tenantScopeOf(message.scope) === tenantScopeOf(lease.scope);
        return sealMessage(isOwn ? key : this.#ring.currentKey, message);
      }),
      ...(response === undefined ? {} : { response: this.#sealedCompletion(key, lease, response) }),
    };
  }

  #sealedCompletion(
    key: SealingKey,
    id: RecordId,
    { kind, response, retentionMs }: Extract<Settlement, { kind: "complete" }>,
  ): Extract<Settlement, { kind: "complete" }> {
    return { kind, response: sealResponse(key, id, response, this.#bodyBytesMax), retentionMs };
  }

  async #sealedResolution(id: RecordId, resolution: Resolution): Promise<Resolution> {
    switch (resolution.kind) {
      case "complete":
        return this.#sealedCompletion(await this.#sealingKey(id), id, resolution);
      case "release":
        return {
          ...resolution,
          progress: sealProgress(await this.#sealingKey(id), id, resolution.progress),
        };
      case "escalate":
        return resolution;
      default:
        return resolution satisfies never;
    }
  }
}

/** What is left free for the headers, which are sealed together with the body. */
const headersBytes = 8192;

/** Another process may have the key, and a process that was given it is restarted within some minutes. */
const unreadableRetryMs = 60_000;
