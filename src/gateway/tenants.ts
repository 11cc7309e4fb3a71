import { hash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import {
  createLocalJWKSet,
  createRemoteJWKSet,
  errors,
  type JSONWebKeySet,
  type JWTVerifyOptions,
  jwtVerify,
} from "jose";
import { bearerToken } from "../http/token.ts";
import type { GatewayConfig, JwtConfig } from "./config/schema.ts";

/** Who is calling; undefined if nobody is known by what was sent, which is a 401. */
export type CallerOf = (req: IncomingMessage) => string | undefined | Promise<string | undefined>;

/** It cannot be told right now who is calling: the request may be good, and nothing is executed. */
export class CallerUnavailableError extends Error {
  constructor(cause: unknown) {
    super("the keys with which tokens are verified could not be fetched", { cause });
  }
}

/** How callers are recognised; reads a file of keys at once, and fetches those behind a URL when they are needed. */
export async function callerOf({ tenant, jwt }: GatewayConfig): Promise<CallerOf> {
  if (tenant === "single") return () => "single";
  if (tenant.startsWith("header:")) return byHeader(tenant.slice("header:".length));
  if (jwt === undefined) throw new TypeError("a tenant by token was not checked to have its keys");
  return byToken(tenant.slice("jwt:".length), jwt, await keysOf(jwt));
}

/**
 * By the digest of a header, which may be a credential and must not end in a store, a log or a metric. Two fields of
 * the name are nobody: the service behind could read the other one.
 */
function byHeader(name: string): CallerOf {
  const field = name.toLowerCase();
  return (req) => {
    const values = req.headersDistinct[field];
    const [value] = values ?? [];
    return values?.length === 1 && value !== undefined && value !== "" ? digestOf(value) : undefined;
  };
}

/** What a header's value is called as a tenant. */
export function digestOf(value: string): string {
  return `h.${hash("sha256", value, "base64url")}`;
}

type Keys = Uint8Array | ReturnType<typeof createRemoteJWKSet> | ReturnType<typeof createLocalJWKSet>;

async function keysOf({ jwks, jwksFile, secret }: JwtConfig): Promise<Keys> {
  if (secret !== undefined) return Buffer.from(secret);
  if (jwksFile !== undefined) {
    return createLocalJWKSet(JSON.parse(await readFile(jwksFile, "utf8")) as JSONWebKeySet);
  }
  return createRemoteJWKSet(new URL(jwks ?? ""), {
    timeoutDuration: fetchTimeoutMs,
    cooldownDuration: cooldownMs,
    cacheMaxAge: cacheMs,
  });
}

const fetchTimeoutMs = 5_000;
const cooldownMs = 5_000; // A token with a key that nobody knows has the keys fetched again, but not more often.
const cacheMs = 600_000; // A key that was withdrawn is good for ten minutes more.

function byToken(claim: string, jwt: JwtConfig, keys: Keys): CallerOf {
  const field = (jwt.header ?? "authorization").toLowerCase();
  const options: JWTVerifyOptions = {
    algorithms: [...jwt.algorithms],
    ...(jwt.issuer === undefined ? {} : { issuer: jwt.issuer }),
    ...(jwt.audience === undefined ? {} : { audience: jwt.audience }),
    clockTolerance: (jwt.clockToleranceMs ?? 0) / 1000,
  };
  return async (req) => {
    const values = req.headersDistinct[field];
    const [value] = values ?? [];
    if (values?.length !== 1 || value === undefined) return undefined;
    const token = field === "authorization" ? bearerToken(value) : (bearerToken(value) ?? value);
    if (token === undefined || token === "") return undefined;
    try {
      // The two kinds of key are two overloads.
      const { payload } =
        keys instanceof Uint8Array
          ? await jwtVerify(token, keys, options)
          : await jwtVerify(token, keys, options);
      return nameOf(payload[claim]);
    } catch (error) {
      if (isTokensFault(error)) return undefined;
      throw new CallerUnavailableError(error);
    }
  };
}

/** A text, or a whole number as one; anything else names nobody. */
function nameOf(claim: unknown): string | undefined {
  if (typeof claim === "string" && claim !== "") return claim;
  return Number.isSafeInteger(claim) ? String(claim) : undefined;
}

/** Whether the token is what is wrong. Everything else is ours, or the issuer's: nothing is concluded from it. */
function isTokensFault(error: unknown): boolean {
  return tokenFaults.some((fault) => error instanceof fault);
}

const tokenFaults = [
  errors.JWTExpired,
  errors.JWTClaimValidationFailed,
  errors.JWTInvalid,
  errors.JWSInvalid,
  errors.JWSSignatureVerificationFailed,
  errors.JOSEAlgNotAllowed,
  errors.JOSENotSupported,
  errors.JWKSNoMatchingKey,
  errors.JWKSMultipleMatchingKeys,
];
