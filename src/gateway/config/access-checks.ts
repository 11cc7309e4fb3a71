import { ConfigError } from "../../core/errors.ts";
import { secretBytes } from "../../privacy/key-ring.ts";
import { error, type Finding, warning } from "./findings.ts";
import type { MemberPath } from "./problems.ts";
import type { GatewayConfig, JwtConfig } from "./schema.ts";

/** What is wrong with tokens, secrets and keys. Says nothing of their values. */
export function accessChecks(config: GatewayConfig): Finding[] {
  const findings: Finding[] = [];
  const isJwt = config.tenant.startsWith("jwt:");
  if (isJwt && config.jwt === undefined) {
    findings.push(
      error(
        ["jwt"],
        "is missing, and tenant is jwt: say how tokens are verified, with jwks, jwksFile or secret, and algorithms",
      ),
    );
  }
  if (config.jwt !== undefined) {
    findings.push(...jwtChecks(config.jwt));
    if (!isJwt)
      findings.push(warning(["jwt"], `is not used: tenant is "${config.tenant}" and not "jwt:CLAIM"`));
  }
  findings.push(...secretCheck(["hashKeys"], config.hashKeys));
  const ids = new Set<string>();
  for (const [index, { id, secret }] of (config.encryption?.keys ?? []).entries()) {
    const path = ["encryption", "keys", index];
    if (!/^[\w.-]{1,32}$/.test(id)) {
      findings.push(error([...path, "id"], "must be 1 to 32 letters, digits, dots, dashes or underscores"));
    }
    if (ids.has(id))
      findings.push(error([...path, "id"], `is "${id}", as another key's is: an id belongs to one secret`));
    ids.add(id);
    findings.push(...secretCheck([...path, "secret"], secret));
  }
  findings.push(...operatorChecks(config));
  if (config.metrics?.token !== undefined && !/^[!-~]+$/.test(config.metrics.token)) {
    findings.push(error(["metrics", "token"], "must be visible ASCII characters without spaces"));
  }
  return findings;
}

function jwtChecks(jwt: JwtConfig): Finding[] {
  const findings: Finding[] = [];
  const sources = (["jwks", "jwksFile", "secret"] as const).filter((name) => jwt[name] !== undefined);
  if (sources.length === 0) {
    findings.push(error(["jwt"], "needs what tokens are verified with: jwks (a URL), jwksFile or secret"));
  }
  if (sources.length > 1) findings.push(error(["jwt"], `has ${sources.join(" and ")}: keep one of them`));
  const isShared = (algorithm: string) => algorithm.startsWith("HS");
  if (jwt.secret === undefined && sources.length > 0 && jwt.algorithms.some(isShared)) {
    findings.push(
      error(
        ["jwt", "algorithms"],
        "names an HMAC with public keys, which would let everybody who has read them sign tokens: remove HS256, HS384 and HS512",
      ),
    );
  }
  if (jwt.secret !== undefined && !jwt.algorithms.every(isShared)) {
    findings.push(
      error(
        ["jwt", "algorithms"],
        "names one that a secret cannot verify: use HS256, HS384 or HS512, or a jwks",
      ),
    );
  }
  if (jwt.secret !== undefined) {
    const bits = Math.max(256, ...jwt.algorithms.filter(isShared).map((name) => Number(name.slice(2))));
    const bytes = Buffer.byteLength(jwt.secret);
    if (bytes * 8 < bits) {
      findings.push(
        error(
          ["jwt", "secret"],
          `has ${bytes} bytes and must have at least ${bits / 8}, or it can be guessed`,
        ),
      );
    }
  }
  if (jwt.audience === undefined) {
    findings.push(
      warning(
        ["jwt"],
        "has no audience: a token that the issuer made for another service is accepted as well",
      ),
    );
  }
  return findings;
}

function secretCheck(path: MemberPath, secret: string | undefined): Finding[] {
  if (secret === undefined) return [];
  try {
    secretBytes("", secret);
    return [];
  } catch (problem) {
    if (!(problem instanceof ConfigError)) throw problem;
    return [
      error(
        path,
        "must be 32 random bytes, as 64 hexadecimal digits or base64url: for example from `openssl rand -hex 32`",
      ),
    ];
  }
}

function operatorChecks({ admin }: GatewayConfig): Finding[] {
  const findings: Finding[] = [];
  const names = new Set<string>();
  const tokens = new Set<string>();
  for (const [index, { name, token }] of (admin?.operators ?? []).entries()) {
    const path = ["admin", "operators", index];
    if (names.has(name)) {
      findings.push(
        error(
          [...path, "name"],
          `is "${name}", as another operator's is: the audit trail could not tell them apart`,
        ),
      );
    }
    if (tokens.has(token))
      findings.push(error([...path, "token"], "is another operator's as well: give each their own"));
    names.add(name);
    tokens.add(token);
  }
  return findings;
}
