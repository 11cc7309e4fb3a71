import { UnreadableError } from "../core/errors.ts";
import type { Message } from "../core/outbox.ts";
import type { Phase, Progress } from "../core/phase.ts";
import type { IdempotencyRecord, RecordId } from "../core/record.ts";
import type { StoredResponse } from "../core/response.ts";
import { tenantScopeOf } from "../core/scope.ts";
import type { StoredRequest } from "../core/stored-request.ts";
import { whenKnown } from "../core/when-known.ts";
import { envelopeOf, open } from "./envelope.ts";
import type { KeyRing } from "./key-ring.ts";
import {
  changedPhase,
  isPlainPhase,
  openedRequest,
  openedResponse,
  type Sealed,
  sealedFields,
  sealedMessage,
  sealedRequest,
  sealedResponse,
  shreddedResponse,
  shreddedText,
} from "./sealing.ts";
import { type Shredded, shredded, type TenantKeys } from "./tenant-keys.ts";

/** How far an operation has come; what was shredded with its tenant is marked, and must not be gone on with. */
export interface OpenedProgress {
  readonly progress: Progress;
  readonly isShredded: boolean;
}

/** Opens what was sealed. What cannot be opened is an `UnreadableError`, never a guess. */
export class Opener {
  readonly #ring: KeyRing;
  readonly #keys: TenantKeys;

  constructor(ring: KeyRing, keys: TenantKeys) {
    this.#ring = ring;
    this.#keys = keys;
  }

  /** At once if the key is there, as it nearly always is. An answer that was shredded is one that was not kept. */
  response(id: RecordId, response: StoredResponse): StoredResponse | Promise<StoredResponse> {
    const sealed = sealedResponse(id, response);
    if (sealed === undefined) {
      this.#refusePlain();
      return response;
    }
    return whenKnown(this.#open(id, sealed), (plain) =>
      plain === shredded ? shreddedResponse(response) : openedResponse(response, plain),
    );
  }

  async request(id: RecordId, request: StoredRequest): Promise<StoredRequest | Shredded> {
    const sealed = sealedRequest(id, request);
    if (sealed === undefined) {
      this.#refusePlain();
      return request;
    }
    const plain = await this.#open(id, sealed);
    return plain === shredded ? shredded : openedRequest(request, plain);
  }

  async progress(id: RecordId, progress: Progress): Promise<OpenedProgress> {
    if (progress.some(isPlainPhase)) this.#refusePlain();
    const texts = new Map<Phase, Map<string, string>>();
    let isShredded = false;
    for (const sealed of sealedFields(id, progress)) {
      const plain = await this.#open(id, sealed);
      if (plain === shredded) isShredded = true;
      const ofPhase = texts.get(sealed.phase) ?? new Map<string, string>();
      texts.set(
        sealed.phase,
        ofPhase.set(sealed.field, plain === shredded ? shreddedText : plain.toString()),
      );
    }
    const opened = progress.map((phase) =>
      changedPhase(phase, (field, text) => texts.get(phase)?.get(field) ?? text),
    );
    return { progress: opened, isShredded };
  }

  async record(record: IdempotencyRecord): Promise<IdempotencyRecord> {
    const opened =
      record.progress.length === 0
        ? record
        : { ...record, progress: (await this.progress(record, record.progress)).progress };
    if (opened.state !== "completed") return opened;
    return { ...opened, response: await this.response(record, opened.response) };
  }

  async payload(message: Message): Promise<string | Shredded> {
    const sealed = sealedMessage(message);
    if (sealed === undefined) {
      this.#refusePlain();
      return message.payload;
    }
    const plain = await this.#open(message, sealed);
    return plain === shredded ? shredded : plain.toString();
  }

  #open({ scope }: Pick<RecordId, "scope">, sealed: Sealed): Buffer | Shredded | Promise<Buffer | Shredded> {
    const envelope = envelopeOf(sealed.envelope);
    return whenKnown(this.#keys.opening(tenantScopeOf(scope), envelope), (key) =>
      key === shredded ? shredded : open(envelope, key, sealed.about),
    );
  }

  #refusePlain(): void {
    if (!this.#ring.refusePlain) return;
    throw new UnreadableError(
      "something is stored that is not sealed, and refusePlain is set: take it out of keyRing until everything that " +
        "was stored before encryption has expired",
    );
  }
}
