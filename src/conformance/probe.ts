import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Evidence } from "./evidence.ts";
import { effectsOf } from "./ledger.ts";
import type { Settings } from "./options.ts";
import { replayedHeaders, waitStatuses } from "./profiles.ts";
import type { Exchange } from "./report/report.ts";
import { type Answer, type Fields, fieldOf, NoAnswerError, type Sending, send, sendRaw } from "./wire.ts";

/** What the API is asked to do, under one key. */
export interface Operation {
  readonly key: string;
  readonly body: string | undefined;
}

/** What is known about the API from requests that went well. */
export interface Acquaintance {
  readonly status: number;
  readonly tookMs: number;
  /** How long after an answer its effect was in the ledger; 0 without one. */
  readonly ledgerLagMs: number;
  /** Whether two executions answer differently, so that the bytes of an answer tell which one it belongs to. */
  readonly tellsApart: boolean;
  /** Whether the mark of a replay means something: an API that marks first answers, too, says nothing with it. */
  readonly marksHonestly: boolean;
  /** Whether a plain retry is answered with the first answer; true until it is known. */
  replays: boolean;
}

export interface SendOptions {
  /** In place of the operation's own, and written as they are: several fields, or none. */
  readonly keys?: readonly string[];
  readonly url?: URL;
  readonly headers?: Readonly<Record<string, string>>;
  /** Over a connection for this request alone, and what becomes of it. The one that is kept open is used if left out. */
  readonly onOwnConnection?: Pick<Sending, "lastByteAfter" | "onSent" | "cut">;
}

const exchangesKept = 12; // A storm of requests would bury what there is to see.
const pollMs = 50;
const pollMsMax = 1000; // It waits longer each time, so as not to be a storm of its own.
const settleMs = 25; // For ledgers that are written just after the answer.

/** One check's view of the API: it sends, and keeps what it has seen as evidence. */
export class Probe {
  readonly settings: Settings;
  readonly known: Acquaintance;
  readonly exchanges: Exchange[] = [];
  exchangesLeftOut = 0;
  readonly #shared: Shared;

  constructor(shared: Shared, known: Acquaintance) {
    this.#shared = shared;
    this.settings = shared.settings;
    this.known = known;
  }

  /** A new key, and a body that was not sent before if the API's user has said how. */
  operation(): Operation {
    this.#shared.operations += 1;
    return { key: randomUUID(), body: this.settings.body(this.#shared.operations) };
  }

  /** The same key with a body that means something else; undefined if there is none. */
  misused({ key }: Operation): Operation | undefined {
    const body = this.settings.otherBody?.(this.#shared.operations);
    return body === undefined ? undefined : { key, body };
  }

  send(operation: Operation, options: SendOptions = {}): Promise<Answer> {
    const how = options.onOwnConnection ?? { agent: this.#shared.agent };
    return this.#kept({ ...this.#request(operation, options), ...how }, send);
  }

  /** With a key that no well-behaved client can write. */
  sendRaw(operation: Operation): Promise<Answer> {
    return this.#kept(this.#request(operation, {}), sendRaw);
  }

  /** Sends the same until it is not put off any more; the last answer if that never ends. */
  async sendUntilSettled(operation: Operation): Promise<Answer> {
    const giveUpAt = performance.now() + this.settings.timeoutMs;
    for (let waitMs = pollMs; ; waitMs = Math.min(2 * waitMs, pollMsMax)) {
      const answer = await this.send(operation);
      const isPutOff =
        waitStatuses.includes(answer.status) || (answer.status === 202 && this.known.status !== 202);
      if (!isPutOff || performance.now() > giveUpAt) return answer;
      await delay(waitMs);
    }
  }

  /** Whether the API says that this is a stored answer, and can be believed. */
  isReplay(answer: Answer): boolean {
    return this.known.marksHonestly && isMarkedReplayed(answer);
  }

  effects(key: string): Promise<number | undefined> {
    return effectsOf(key, this.settings);
  }

  /** Counted after a while, in which a second execution that is still under way can end. */
  async effectsInTheEnd(key: string): Promise<number | undefined> {
    if (this.settings.effects === undefined) return undefined;
    await delay(
      Math.min(this.settings.timeoutMs, settleMs + 2 * (this.known.tookMs + this.known.ledgerLagMs)),
    );
    return this.effects(key);
  }

  #request({ key, body }: Operation, options: SendOptions) {
    const { settings } = this;
    const { url, headers = {}, keys = [settings.quotesKeys ? `"${key}"` : key] } = options;
    const fields: Fields = [
      ...Object.entries({ ...settings.headers, ...headers }),
      ...keys.map((one): [string, string] => [settings.keyHeader, one]),
    ];
    return { method: settings.method, url: url ?? settings.url, fields, body, timeoutMs: settings.timeoutMs };
  }

  async #kept(sending: Sending, how: (sending: Sending) => Promise<Answer>): Promise<Answer> {
    const startedAt = performance.now();
    const keep = (answer: Answer | { reason: string }) => {
      if (this.exchanges.length >= exchangesKept) this.exchangesLeftOut += 1;
      else
        this.exchanges.push(this.#shared.evidence.exchange(sending, performance.now() - startedAt, answer));
    };
    try {
      const answer = await how(sending);
      keep(answer);
      return answer;
    } catch (error) {
      if (error instanceof NoAnswerError) keep({ reason: error.message });
      throw error;
    }
  }
}

/** What the probes of all checks have in common. */
export interface Shared {
  readonly settings: Settings;
  readonly evidence: Evidence;
  /** Keeps one connection open, as a client does that retries at once. */
  readonly agent: NonNullable<Sending["agent"]>;
  operations: number;
}

export function isSuccess({ status }: Answer): boolean {
  return status >= 200 && status < 300;
}

export function isRefusal({ status }: Answer): boolean {
  return status >= 400 && status < 500;
}

/** Whether the API itself says that this is the stored answer. */
export function isMarkedReplayed(answer: Answer): boolean {
  return replayedHeaders.some((name) => /^(true|\?1|1)$/i.test(fieldOf(answer, name) ?? ""));
}

/** How an answer differs from the one that it should repeat; undefined if it is the same. */
export function differenceOf(first: Answer, second: Answer): string | undefined {
  if (first.status !== second.status) return `the status was ${first.status} and is ${second.status}`;
  if (first.body.equals(second.body)) return undefined;
  return `the status is the same, and the body is not: ${first.body.length} bytes and ${second.body.length} bytes`;
}

/** What nobody can know without a ledger, said wherever it matters. */
export function blindness({ settings, known }: Probe): string {
  if (settings.effects !== undefined) return "";
  return known.tellsApart
    ? " Effects were not looked at, so a second execution that answers with the first one's bytes would not be seen."
    : " Effects were not looked at, and every execution here answers alike, so a second execution would not be seen.";
}
