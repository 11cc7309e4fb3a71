import { validateHeaderName, validateHeaderValue } from "node:http";
import { PhaseError } from "../core/errors.ts";
import type { Policy } from "../core/policy.ts";
import { type HeaderPair, headerAllowList, type StoredResponse, toStoredResponse } from "../core/response.ts";

/** An answer that commits with a business write. */
export interface OwnResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Text and bytes are sent as they are, anything else as JSON. */
  readonly body?: unknown;
}

/** The answer as it is stored, under the rules of its route. */
export function storedResponseOf(
  response: OwnResponse,
  policy: Pick<Policy, "replayHeaders" | "responseBytesMax">,
): StoredResponse {
  const { status, headers = {}, body } = response;
  if (!Number.isInteger(status) || status < 200 || status > 599) {
    throw new PhaseError(`an answer was given the status ${status}: use one from 200 to 599`);
  }
  const { bytes, contentType } = encodeBody(body);
  if (bytes.byteLength > policy.responseBytesMax) {
    throw new PhaseError(
      `an answer was given ${bytes.byteLength} bytes, and this route stores up to ${policy.responseBytesMax}`,
    );
  }
  const pairs: HeaderPair[] = Object.entries(headers).map(([name, value]) => [
    name.toLowerCase(),
    String(value),
  ]);
  for (const [name, value] of pairs) assertSendable(name, value);
  if (contentType !== undefined && !pairs.some(([name]) => name === "content-type")) {
    pairs.push(["content-type", contentType]);
  }
  const { responseBytesMax } = policy;
  const allowedHeaders = headerAllowList(policy.replayHeaders);
  return toStoredResponse({ status, headers: pairs, body: bytes }, { allowedHeaders, responseBytesMax });
}

/** What is stored is sent again and again, so it must be known before that it can be. */
function assertSendable(name: string, value: string): void {
  try {
    validateHeaderName(name);
    validateHeaderValue(name, value);
  } catch (cause) {
    throw new PhaseError(`an answer was given the header "${name}", which cannot be sent: encode it`, {
      cause,
    });
  }
}

function encodeBody(body: unknown): { readonly bytes: Uint8Array; readonly contentType?: string } {
  if (body === undefined) return { bytes: new Uint8Array() };
  if (typeof body === "string") return { bytes: Buffer.from(body), contentType: "text/plain; charset=utf-8" };
  if (body instanceof Uint8Array) return { bytes: body, contentType: "application/octet-stream" };
  return { bytes: Buffer.from(JSON.stringify(body)), contentType: "application/json; charset=utf-8" };
}
