import { hash, timingSafeEqual } from "node:crypto";

/**
 * Whether somebody has given the right token. It takes as long for one that is nearly right as for any other, and says
 * nothing about the length: what is compared are digests.
 */
export function sameToken(expected: string, given: string): boolean {
  return timingSafeEqual(hash("sha256", expected, "buffer"), hash("sha256", given, "buffer"));
}

const schemePattern = /^bearer +/i;

/** The token of an `Authorization: Bearer …` header; undefined if there is none. */
export function bearerToken(authorization: string | undefined): string | undefined {
  if (authorization === undefined || !schemePattern.test(authorization)) return undefined;
  return authorization.replace(schemePattern, "").trim();
}
