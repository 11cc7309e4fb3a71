import type { HeaderPair } from "./response.ts";

/** A request as it is kept for a worker that executes or finishes it later, on any machine. */
export interface StoredRequest {
  readonly method: string;
  /** Path and query, as they came. */
  readonly target: string;
  /** Who sent it, from its authentication. */
  readonly tenant: string;
  readonly headers: readonly HeaderPair[];
  readonly body: Uint8Array;
}

/** A stored request as two columns, the same in every store. */
export interface EncodedRequest {
  readonly head: string;
  readonly body: Uint8Array;
}

/** Stored beside each request; a reader that meets a newer one must not guess. */
const encodingVersion = 1;

export function encodeRequest({ body, ...head }: StoredRequest): EncodedRequest {
  return { head: JSON.stringify({ v: encodingVersion, ...head }), body };
}

export function decodeRequest(encoded: EncodedRequest): StoredRequest {
  const { v, ...head } = JSON.parse(encoded.head) as { v: number } & Omit<StoredRequest, "body">;
  if (v !== encodingVersion) {
    throw new Error(
      `a stored request has encoding version ${v}, this Latchkey reads version ${encodingVersion}: upgrade this process`,
    );
  }
  return { ...head, body: encoded.body };
}

/** Under this name the trace of the first request is kept with it, and comes back with the worker that sends it again. */
export const traceHeader = "latchkey-trace";
