import { randomUUID } from "node:crypto";
import { bufferOf } from "../core/bytes.ts";
import { UnreadableError } from "../core/errors.ts";
import type { Message, NewMessage } from "../core/outbox.ts";
import type { Phase, Progress } from "../core/phase.ts";
import type { RecordId } from "../core/record.ts";
import {
  areSameHeaders,
  copiedHeaders,
  type HeaderPair,
  isSealed,
  type StoredResponse,
  sealedMark,
} from "../core/response.ts";
import type { StoredRequest } from "../core/stored-request.ts";
import { bytesOf, isSealedText, placeName, type SealingKey, seal, textOf } from "./envelope.ts";

/*
 * What is sealed of each thing that is stored, and what it looks like then. Everything keeps its type, so that every
 * store takes it; what a store, a worker or an operator has to see stays readable: states, names, statuses, methods.
 */

/** One sealed value, and the place that it was sealed for. */
export interface Sealed {
  readonly envelope: Buffer;
  readonly about: string;
}

type FullResponse = Extract<StoredResponse, { kind: "full" }>;

/** The status stays readable, and is authenticated. `bodyBytesMax` is what the store takes of a body. */
export function sealResponse(
  key: SealingKey,
  id: RecordId,
  response: StoredResponse,
  bodyBytesMax: number,
): StoredResponse {
  const sealed = sealedWith(key, responsePlace(id, response.status), response);
  if (sealed.body.byteLength <= bodyBytesMax || response.kind === "omitted") return sealed;
  // Its headers are so large that it does not fit: then it is one of those that are not kept.
  return sealResponse(key, id, omitted(response), bodyBytesMax);
}

/** The answer to whatever nobody executed in time is the same for all, and known to everybody. */
export function sealUnclaimed(key: SealingKey, response: StoredResponse): StoredResponse {
  return sealedWith(key, unclaimedPlace(response.status), response, unclaimedMarks);
}

function sealedWith(
  key: SealingKey,
  about: string,
  response: StoredResponse,
  headers: readonly HeaderPair[] = recordMarks,
): FullResponse {
  const body =
    response.kind === "full"
      ? seal(key, about, headersBytes(response.headers), response.body)
      : seal(key, about, headBytes({ omittedBytes: response.bodyBytes, because: response.because }));
  const { status, trace } = response;
  const sealed = { kind: "full", status, headers, body } as const;
  return trace === undefined ? sealed : { ...sealed, trace };
}

export function sealedResponse(id: RecordId, response: StoredResponse): Sealed | undefined {
  if (response.kind !== "full" || !isSealed(response.headers)) return undefined;
  const isUnclaimed = response.headers[0]?.[1] === unclaimed;
  const about = isUnclaimed ? unclaimedPlace(response.status) : responsePlace(id, response.status);
  return { envelope: bufferOf(response.body), about };
}

export function openedResponse(sealed: StoredResponse, plain: Buffer): StoredResponse {
  const { head, body } = splitHead<ResponseHead>(plain);
  const { status, trace } = sealed;
  const traced = trace === undefined ? {} : { trace };
  if (head.omittedBytes === undefined) {
    return { kind: "full", status, headers: head.headers ?? [], body, ...traced };
  }
  const because = head.because === undefined ? {} : { because: head.because };
  return { kind: "omitted", status, bodyBytes: head.omittedBytes, ...because, ...traced };
}

/** What is left to say about an answer that nobody can read any more. */
export function shreddedResponse({ status, trace }: StoredResponse): StoredResponse {
  const response = { kind: "omitted", status, bodyBytes: 0, because: "shredded" } as const;
  return trace === undefined ? response : { ...response, trace };
}

/** Method and tenant stay readable, and are authenticated. Without a path nobody can send it by mistake. */
export function sealRequest(key: SealingKey, id: RecordId, request: StoredRequest): StoredRequest {
  const { method, tenant, target, headers, body } = request;
  const sealed = seal(key, requestPlace(id, request), headBytes({ target, headers }), body);
  return { method, tenant, target: "sealed", headers: recordMarks, body: sealed };
}

export function sealedRequest(id: RecordId, request: StoredRequest): Sealed | undefined {
  if (!isSealed(request.headers)) return undefined;
  return { envelope: bufferOf(request.body), about: requestPlace(id, request) };
}

export function openedRequest({ method, tenant }: StoredRequest, plain: Buffer): StoredRequest {
  const { head, body } = splitHead<Pick<StoredRequest, "target" | "headers">>(plain);
  return { method, tenant, target: head.target, headers: head.headers, body };
}

/** What each phase gave back, threw or referred to; its name, kind and state stay readable. */
export function sealProgress(key: SealingKey, id: RecordId, progress: Progress): Progress {
  return progress.map((phase) =>
    changedPhase(phase, (field, text) => {
      if (text === shreddedText) throw new UnreadableError(shreddedPhases);
      return textOf(seal(key, phasePlace(id, phase, field), Buffer.from(text)));
    }),
  );
}

export interface SealedField extends Sealed {
  readonly phase: Phase;
  readonly field: PhaseField;
}

/** Every sealed text of the phases. */
export function sealedFields(id: RecordId, progress: Progress): SealedField[] {
  const fields: SealedField[] = [];
  for (const phase of progress) {
    for (const field of phaseFields) {
      const text = fieldOf(phase, field);
      if (text === undefined || !isSealedText(text)) continue;
      fields.push({ phase, field, envelope: bytesOf(text), about: phasePlace(id, phase, field) });
    }
  }
  return fields;
}

/** Whether a phase says something that was not sealed. */
export function isPlainPhase(phase: Phase): boolean {
  return phaseFields.some((field) => {
    const text = fieldOf(phase, field);
    return text !== undefined && !isSealedText(text);
  });
}

/** The phase with each of its texts changed. */
export function changedPhase(phase: Phase, change: (field: PhaseField, text: string) => string): Phase {
  const texts: Partial<Record<PhaseField, string>> = {};
  for (const field of phaseFields) {
    const text = fieldOf(phase, field);
    if (text !== undefined) texts[field] = change(field, text);
  }
  return { ...phase, ...texts };
}

/**
 * Where the result of a phase was, once nobody can read it any more. It is never written back, so no handler must be able to
 * return it: it is another one in each process.
 */
export const shreddedText = JSON.stringify({ latchkey: "shredded", mark: randomUUID() });

const shreddedPhases =
  "what this operation had done was made unreadable together with everything of its tenant, so that it cannot go on: " +
  "settle it with its answer";

export function sealMessage(key: SealingKey, message: NewMessage): NewMessage {
  return { ...message, payload: textOf(seal(key, messagePlace(message), Buffer.from(message.payload))) };
}

export function sealedMessage(message: Message): Sealed | undefined {
  if (!isSealedText(message.payload)) return undefined;
  return { envelope: bytesOf(message.payload), about: messagePlace(message) };
}

interface ResponseHead {
  readonly headers?: readonly HeaderPair[];
  readonly omittedBytes?: number;
  readonly because?: Extract<StoredResponse, { kind: "omitted" }>["because"];
}

type PhaseField = "result" | "reference" | "error";
const phaseFields: readonly PhaseField[] = ["result", "reference", "error"];

function fieldOf(phase: Phase, field: PhaseField): string | undefined {
  return (phase as Partial<Record<PhaseField, string>>)[field];
}

/** In the place of headers. */
const recordMarks: readonly HeaderPair[] = [[sealedMark, "1"]];
const unclaimed = "unclaimed";
const unclaimedMarks: readonly HeaderPair[] = [[sealedMark, unclaimed]];

function responsePlace({ scope, key }: RecordId, status: number): string {
  return placeName("response", scope, key, String(status));
}

function unclaimedPlace(status: number): string {
  return placeName("unclaimed", String(status));
}

function requestPlace({ scope, key }: RecordId, { method, tenant }: StoredRequest): string {
  return placeName("request", scope, key, method, tenant);
}

function phasePlace({ scope, key }: RecordId, { name, kind }: Phase, field: PhaseField): string {
  return placeName("phase", scope, key, kind, name, field);
}

function messagePlace({ scope, key, topic }: Pick<Message, "scope" | "key" | "topic">): string {
  return placeName("message", scope, key, topic);
}

function omitted({ status, body, trace }: FullResponse): StoredResponse {
  const response = { kind: "omitted", status, bodyBytes: body.byteLength } as const;
  return trace === undefined ? response : { ...response, trace };
}

/** What stands before a body: a head, and before it how long it is. */
function headBytes(head: object): Buffer {
  const text = JSON.stringify(head);
  const length = Buffer.byteLength(text);
  const bytes = Buffer.allocUnsafe(lengthBytes + length);
  bytes.writeUInt32BE(length);
  bytes.write(text, lengthBytes);
  return bytes;
}

/** Most answers of a service have the headers of the answer before, and need not be written down again. */
function headersBytes(headers: readonly HeaderPair[]): Buffer {
  if (latest === undefined || !areSameHeaders(headers, latest.headers)) {
    latest = { headers: copiedHeaders(headers), bytes: headBytes({ headers } satisfies ResponseHead) };
  }
  return latest.bytes;
}

interface WrittenHeaders {
  readonly headers: readonly HeaderPair[];
  readonly bytes: Buffer;
}

let latest: WrittenHeaders | undefined;

function splitHead<Head>(plain: Buffer): { readonly head: Head; readonly body: Buffer } {
  const bodyAt = lengthBytes + plain.readUInt32BE();
  return {
    head: JSON.parse(plain.toString("utf8", lengthBytes, bodyAt)) as Head,
    body: plain.subarray(bodyAt),
  };
}

const lengthBytes = 4;
