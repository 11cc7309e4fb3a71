import { expect } from "vitest";
import {
  type FingerprintAnswer,
  type FingerprintInput,
  fingerprintRequest,
} from "../../src/core/fingerprint.ts";

/** A request of which only what matters is said. */
export type RequestSketch = Partial<Omit<FingerprintInput, "body">> & {
  body?: string | Uint8Array | FingerprintInput["body"];
};

export function request({ body = "", ...rest }: RequestSketch): FingerprintInput {
  const bytes = (content: string | Uint8Array) =>
    typeof content === "string" ? Buffer.from(content) : content;
  return {
    method: "POST",
    path: "/rides",
    query: "",
    contentType: undefined,
    contentEncoding: undefined,
    ...rest,
    body: typeof body === "object" && "kind" in body ? body : { kind: "bytes", bytes: bytes(body) },
  };
}

export function of(sketch: RequestSketch): string {
  return fingerprintOf(fingerprintRequest(request(sketch)));
}

export function json(body: string): string {
  return of({ contentType: "application/json", body });
}

export function parsed(value: unknown, contentType: string): string {
  return of({ contentType, body: { kind: "parsed", value } });
}

export function fingerprintOf(answer: FingerprintAnswer): string {
  if (answer.kind !== "fingerprint")
    throw new Error(`Expected a fingerprint, got ${JSON.stringify(answer)}.`);
  expect(answer.fingerprint).toMatch(/^v1:[\w-]{43}$/);
  return answer.fingerprint;
}
