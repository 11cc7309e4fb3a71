import { hash } from "node:crypto";

/** What a key is unique within: everything a tenant does, or one endpoint of that tenant. */
export type ScopePolicy = "tenant" | "tenant+endpoint";

/** As long as a key, for the same reason: both are halves of one index entry. */
export const tenantLengthMax = 255;

/**
 * Names the scope of a key, so that two different scopes never have one name.
 *
 * The name is at most 512 characters of visible ASCII (and the two separating spaces), whatever the input: a
 * part that does not fit is replaced by its digest rather than refused, because a long URL is no reason to fail.
 *
 * @example
 * scopeOf({ tenant: "acme", policy: "tenant", method: "POST", path: "/rides" }); // "acme"
 * scopeOf({ tenant: "acme", policy: "tenant+endpoint", method: "POST", path: "/rides" }); // "acme POST /rides"
 */
export function scopeOf(input: {
  tenant: string;
  policy: ScopePolicy;
  method: string;
  path: string;
}): string {
  const tenant = tenantName(input.tenant);
  switch (input.policy) {
    case "tenant":
      return tenant;
    case "tenant+endpoint": {
      const prefix = `${tenant} ${escapedName(input.method, methodLengthMax)} `;
      return prefix + pathName(input.path, scopeLengthMax - prefix.length);
    }
    default:
      return input.policy satisfies never;
  }
}

/** The tenant's part of a scope: its own scope, and what every scope of its endpoints begins with. */
export function tenantScopeOf(scope: string): string {
  const end = scope.indexOf(" ");
  return end === -1 ? scope : scope.slice(0, end);
}

/**
 * The tenant's part of a scope, for somebody who may have read it there or know the tenant's own name. Only a name with
 * a percent sign can be taken for the other of the two.
 */
export function escapedTenantOf(text: string): string {
  const isEscaped = /^(?:[!-$&-~]|%[0-9A-F]{2})+$/.test(text) && text.length <= tenantLengthMax;
  return isEscaped ? text : escapedName(text, tenantLengthMax);
}

/** Whether a value can be a tenant: a string that is neither empty nor longer than {@link tenantLengthMax}. */
export function isTenant(value: unknown): value is string {
  return typeof value === "string" && value.length > 0 && value.length <= tenantLengthMax;
}

// A tenant, a method and a digest always fit, and so does the key beside it in an index entry of any store.
const scopeLengthMax = 512;

// The longest registered method, UPDATEREDIRECTREF, has 17 characters.
const methodLengthMax = 32;

/** The requests of one tenant mostly come together. */
let lastTenant = { tenant: "", name: "" };

function tenantName(tenant: string): string {
  if (lastTenant.tenant !== tenant) lastTenant = { tenant, name: escapedName(tenant, tenantLengthMax) };
  return lastTenant.name;
}

function escapedName(text: string, lengthMax: number): string {
  const escaped = escapeText(text);
  return isName(escaped, lengthMax) ? escaped : digestOf(text);
}

/** A path stays as the client sent it, percent signs included, since an operator will look for it in a log. */
function pathName(path: string, lengthMax: number): string {
  return /^[!-~]*$/.test(path) && isName(path, lengthMax) ? path : digestOf(path);
}

const digestMark = "sha256:";

/** A text that looks like a digest is digested as well, or it could pose as the text behind that digest. */
function isName(text: string, lengthMax: number): boolean {
  return text.length <= lengthMax && !text.startsWith(digestMark);
}

/** Hashes UTF-16 rather than UTF-8, which cannot tell two lone surrogates apart. */
function digestOf(text: string): string {
  return digestMark + hash("sha256", Buffer.from(text, "utf16le"), "base64url");
}

/**
 * Percent-encodes everything but visible ASCII, and the percent sign itself. Unlike `encodeURIComponent` it
 * leaves `:`, `/` and `@` readable, and it does not throw on half a surrogate pair.
 */
function escapeText(text: string): string {
  return text.replace(/[^!-$&-~]/gu, (character) => {
    const codePoint = character.codePointAt(0) as number;
    return utf8Bytes(codePoint)
      .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, "0")}`)
      .join("");
  });
}

/**
 * The UTF-8 encoding of a code point, extended to surrogates, each of which keeps its own three bytes. TextEncoder
 * would give all of them the replacement character, and two tenants would become one.
 */
function utf8Bytes(codePoint: number): number[] {
  const tail = (shift: number) => 0x80 | ((codePoint >> shift) & 0x3f);
  if (codePoint < 0x80) return [codePoint];
  if (codePoint < 0x800) return [0xc0 | (codePoint >> 6), tail(0)];
  if (codePoint < 0x10000) return [0xe0 | (codePoint >> 12), tail(6), tail(0)];
  return [0xf0 | (codePoint >> 18), tail(12), tail(6), tail(0)];
}
