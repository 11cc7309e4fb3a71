import { ConfigError } from "../core/errors.ts";
import { type RecordId, recordIdText } from "../core/record.ts";
import type { StoredResponse } from "../core/response.ts";
import type { BustListener, BustNames, Replay, SettleAnswer, Settlement, Store } from "../core/store.ts";
import { Recency, type Used } from "./recency.ts";
import type { Runtime } from "./runtime.ts";
import type { Verdict } from "./verdict.ts";

/** How much of the answers that it has seen a process keeps. */
export interface ReplayCacheOptions {
  /** How many answers; 10,000 if left out. */
  readonly entriesMax?: number;
  /** How much memory they may take together; 16 MiB if left out. An answer that needs a 64th of it is not kept. */
  readonly bytesMax?: number;
}

/** Taken before the store is asked: what it answers may be kept only if nothing was missed or busted meanwhile. */
export interface CacheTicket {
  readonly epoch: number;
  readonly at: number;
}

/**
 * Answers that this process need not ask the store for again. A completed record changes in two ways only: it runs
 * out, or it is busted. So an entry is good until the end of its retention, counted on this process's own clock from
 * before the store said how long that is; and busts are told by the store. While they cannot be heard, nothing is kept.
 */
export class ReplayCache implements BustListener {
  readonly #runtime: Runtime;
  readonly #entriesMax: number;
  readonly #bytesMax: number;
  readonly #nameOf: BustNames;
  readonly #entries = new Map<string, Entry>();
  readonly #byName = new Map<string, Entry>();
  readonly #recency = new Recency<Entry>();
  #bytes = 0;
  #isListening = false;
  /**
   * Grows with everything that makes it uncertain whether what is on its way from the store is still so. Busts are
   * rare, so that one does not have to be the bust of the very record.
   */
  #epoch = 0;

  constructor(options: ReplayCacheOptions, { store, runtime }: { store: Store; runtime: Runtime }) {
    this.#runtime = runtime;
    this.#entriesMax = checkedMax("entriesMax", options.entriesMax ?? entriesMaxDefault);
    this.#bytesMax = checkedMax("bytesMax", options.bytesMax ?? bytesMaxDefault);
    if (store.onBusted === undefined) throw new ConfigError(cannotPush(store.name));
    this.#nameOf = store.onBusted(this);
  }

  /** What the request is answered with; undefined if the store has to be asked. */
  get(id: RecordId & { readonly fingerprint: string }): ReplayVerdict | undefined {
    const entry = this.#entries.get(recordIdText(id));
    // Whoever comes with another request is told so by the store.
    if (entry === undefined || entry.fingerprint !== id.fingerprint) return undefined;
    if (entry.validUntil <= this.#runtime.now()) {
      this.#forget(entry);
      return undefined;
    }
    this.#recency.use(entry);
    return entry.verdict;
  }

  /** Undefined while nothing can be kept. */
  ticket(): CacheTicket | undefined {
    return this.#isListening ? { epoch: this.#epoch, at: this.#runtime.now() } : undefined;
  }

  /** Keeps what the store answered to a question that was asked after the ticket was taken. */
  keep(
    ticket: CacheTicket | undefined,
    id: RecordId & { readonly fingerprint: string },
    { response, expiresAt, remainingMs }: Omit<Replay, "kind">,
  ): void {
    if (ticket === undefined || ticket.epoch !== this.#epoch) return;
    const idText = recordIdText(id);
    const bytes = entryBytes + 2 * idText.length + responseBytes(response);
    if (bytes > this.#bytesMax / largestShare) return;
    this.#forget(this.#entries.get(idText));
    const entry: Entry = {
      idText,
      name: this.#nameOf(id),
      fingerprint: id.fingerprint,
      verdict: { kind: "replay", response: ownCopy(response), expiresAt },
      // A store counts in whole milliseconds: a part of the first one may have been over when it began to count.
      validUntil: ticket.at + Math.min(remainingMs, validMsMax) - 1,
      bytes,
      older: undefined,
      newer: undefined,
    };
    this.#entries.set(idText, entry);
    this.#byName.set(entry.name, entry);
    this.#recency.add(entry);
    this.#bytes += bytes;
    while (this.#entries.size > this.#entriesMax || this.#bytes > this.#bytesMax) {
      this.#forget(this.#recency.oldest);
    }
  }

  /**
   * Keeps an outcome that the store has just confirmed. It must have been told for the first time: then its retention
   * began after the ticket was taken. One that is told again may have been heard long before.
   */
  keepSettled(
    ticket: CacheTicket | undefined,
    { scope, key, fingerprint }: RecordId & { readonly fingerprint: string | undefined },
    settlement: Settlement,
    answer: SettleAnswer,
  ): void {
    if (settlement.kind !== "complete" || answer.kind !== "settled" || fingerprint === undefined) return;
    const { response, retentionMs } = settlement;
    const { expiresAt } = answer;
    this.keep(ticket, { scope, key, fingerprint }, { response, expiresAt, remainingMs: retentionMs });
  }

  /** The answer was busted by this process, or may have been. */
  bustedHere(id: RecordId): void {
    this.#epoch += 1;
    this.#forget(this.#entries.get(recordIdText(id)));
  }

  busted(name: string): void {
    this.#epoch += 1;
    this.#forget(this.#byName.get(name));
  }

  listening(): void {
    this.#isListening = true;
  }

  interrupted(): void {
    this.#isListening = false;
    this.clear();
  }

  /** Forgets everything, and what is on its way. */
  clear(): void {
    this.#epoch += 1;
    this.#entries.clear();
    this.#byName.clear();
    this.#recency.clear();
    this.#bytes = 0;
  }

  #forget(entry: Entry | undefined): void {
    if (entry === undefined) return;
    this.#entries.delete(entry.idText);
    this.#byName.delete(entry.name);
    this.#recency.delete(entry);
    this.#bytes -= entry.bytes;
  }
}

type ReplayVerdict = Extract<Verdict, { kind: "replay" }>;

interface Entry extends Used<Entry> {
  readonly idText: string;
  /** By which its bust is told. */
  readonly name: string;
  readonly fingerprint: string;
  readonly verdict: ReplayVerdict;
  /** On this process's clock. */
  readonly validUntil: number;
  readonly bytes: number;
}

const entriesMaxDefault = 10_000;
const bytesMaxDefault = 16 * 1024 * 1024;

/** One large answer must not push out all the others. */
const largestShare = 64;

/** About what an entry takes beside its texts and its body: objects, two places in maps, the name, the fingerprint. */
const entryBytes = 600;

/**
 * Two clocks run at different speeds, by up to a tenth of a second in fifteen minutes, and the store's may be set. So
 * the store is asked again from time to time, which costs nothing at this rate.
 */
const validMsMax = 300_000;

function responseBytes(response: StoredResponse): number {
  if (response.kind === "omitted") return 0;
  let bytes = response.body.byteLength;
  for (const [name, value] of response.headers) bytes += 2 * (name.length + value.length) + headerBytes;
  return bytes;
}

/** About what a pair of strings takes beside their characters. */
const headerBytes = 100;

/**
 * A driver's body is often a window onto a much larger buffer, all of which would be kept, and a handler's body is the
 * handler's, which may use it again.
 */
function ownCopy(response: StoredResponse): StoredResponse {
  return response.kind === "omitted" ? response : { ...response, body: new Uint8Array(response.body) };
}

function checkedMax(name: keyof ReplayCacheOptions, value: number): number {
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new ConfigError(`cache.${name} is ${value} and must be a whole number above 0`);
}

function cannotPush(storeName: string): string {
  return (
    `the ${storeName} store, as it was made here, cannot tell this process at once when another one busts a key, and a ` +
    "cache would go on replaying it: use postgresStore with a Pool of the package pg and listen: true or " +
    'lock: "advisory", or leave cache out'
  );
}
