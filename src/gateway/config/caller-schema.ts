import * as v from "valibot";
import { choice, headerName, httpUrl, members, period, text } from "./members.ts";

const tenantRule = 'must be "single", "header:NAME" or "jwt:CLAIM"';

/** How callers are told apart. */
export const tenant = v.pipe(
  v.string(tenantRule),
  v.regex(/^(single|header:[!#$%&'*+.^_`|~0-9A-Za-z-]+|jwt:\S+)$/, tenantRule),
  v.description(
    "Who is calling. `single`: everybody shares one key space. `header:NAME`: by the SHA-256 of a header's value. `jwt:CLAIM`: by a claim of a token that is verified.",
  ),
);

const jwtAlgorithms = [
  "RS256",
  "RS384",
  "RS512",
  "PS256",
  "PS384",
  "PS512",
  "ES256",
  "ES384",
  "ES512",
  "EdDSA",
  "Ed25519",
  "HS256",
  "HS384",
  "HS512",
] as const;

export const jwt = members(
  {
    jwks: v.optional(httpUrl("Where the public keys of the issuer are.")),
    jwksFile: v.optional(text("The same, in a file; relative to the configuration's folder.")),
    secret: v.optional(text("The shared secret of HS256, HS384 or HS512: at least as long as the hash.")),
    algorithms: v.pipe(
      v.array(choice(jwtAlgorithms, "An algorithm."), "must be a list of algorithms"),
      v.minLength(1, "is empty: name what the issuer signs with, such as RS256"),
      v.description("What tokens may be signed with. Nothing else is accepted."),
    ),
    issuer: v.optional(text("What `iss` has to be.")),
    audience: v.optional(text("What `aud` has to be, or to hold.")),
    clockToleranceMs: v.optional(period("What clocks may differ by; 0 if left out.")),
    header: v.optional(
      headerName("The header with the token; Authorization, as a Bearer token, if left out."),
    ),
  },
  "How tokens are verified, with `tenant: jwt:CLAIM`.",
);
