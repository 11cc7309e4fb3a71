import * as v from "valibot";
import {
  choice,
  count,
  duration,
  flag,
  headerName,
  httpUrl,
  isHttpUrl,
  list,
  members,
  ownPath,
  port,
  share,
  size,
  text,
} from "./members.ts";
import { methods, policyEntries } from "./policy-schema.ts";

const upstreamRule =
  'must be where the service is, such as "http://127.0.0.1:3000", without user, query or fragment';

const upstreamUrl = v.pipe(
  v.string(upstreamRule),
  v.check(isBase, upstreamRule),
  v.description("Where the service is; a path in it comes before the path of every request."),
);

const upstream = v.union(
  [
    upstreamUrl,
    members(
      {
        url: upstreamUrl,
        connections: v.optional(count("How many connections to upstream are open at most.")),
        connectTimeoutMs: v.optional(
          duration("How long a connection may take to be made.", { above0: true }),
        ),
        headersTimeoutMs: v.optional(duration("How long upstream may take to begin its answer; 0 for ever.")),
        bodyTimeoutMs: v.optional(duration("How long an answer may pause in its middle; 0 for ever.")),
        host: v.optional(
          choice(["client", "upstream"], "Which Host upstream gets: the client's, or its own."),
        ),
      },
      "The service, and how it is reached.",
    ),
  ],
  upstreamRule,
);

const listen = members(
  {
    port: v.optional(port("8080 if left out."), 8080),
    host: v.optional(text("127.0.0.1 if left out: only this machine reaches it."), "127.0.0.1"),
    maxHeaderBytes: v.optional(size("Larger heads of requests are refused (431).")),
    headersTimeoutMs: v.optional(
      duration("How long a client may take for the head of a request.", { above0: true }),
    ),
    requestTimeoutMs: v.optional(duration("How long a client may take for the whole request; 0 for ever.")),
    keepAliveTimeoutMs: v.optional(duration("How long a connection may be idle between two requests.")),
    trustForwarded: v.optional(
      flag("Whether Forwarded and X-Forwarded-* of whoever connects are believed and extended, or replaced."),
    ),
  },
  "Where the gateway listens.",
);

const tenantRule = 'must be "single", "header:NAME" or "jwt:CLAIM"';

const tenant = v.pipe(
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

const jwt = members(
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
    clockToleranceMs: v.optional(duration("What clocks may differ by; 0 if left out.")),
    header: v.optional(
      headerName("The header with the token; Authorization, as a Bearer token, if left out."),
    ),
  },
  "How tokens are verified, with `tenant: jwt:CLAIM`.",
);

const status = (description: string) => {
  const rule = "must be a status from 200 to 599";
  return v.pipe(
    v.number(rule),
    v.integer(rule),
    v.minValue(200, rule),
    v.maxValue(599, rule),
    v.description(description),
  );
};

const reconcileUrlRule =
  'must be a path of upstream such as "/charges/by-key/{key}", or an http:// or https:// URL';

const reconcile = members(
  {
    url: v.pipe(
      v.string(reconcileUrlRule),
      v.check((url) => /^\/(?!\/)/.test(url) || isHttpUrl(url.replaceAll(/[{}]/g, "")), reconcileUrlRule),
      v.description("What is asked with GET. {key}, {tenant} and {route} are put in, percent-encoded."),
    ),
    headers: v.optional(
      v.pipe(
        v.record(headerName("A header."), v.string("must be a text"), "must be a map of headers"),
        v.description("Sent with the question."),
      ),
    ),
    executed: v.optional(
      list(
        status("A status."),
        "Statuses that mean: it was executed. [200] if left out.",
        "must be a list of statuses",
      ),
      [200],
    ),
    notExecuted: v.optional(
      list(
        status("A status."),
        "Statuses that mean: it was not executed, and will not be. [404] if left out.",
        "must be a list of statuses",
      ),
      [404],
    ),
    answerStatus: v.optional(
      v.union([v.literal("same"), status("A status.")], 'must be a status from 200 to 599, or "same"'),
      "same",
    ),
    timeoutMs: v.optional(duration("10 s if left out.", { above0: true }), 10_000),
  },
  "How upstream is asked what became of a request whose outcome is not known.",
);

const pathRule =
  'must be a path such as "/charges", "/charges/:id/capture" or "/v1/*": segments without dots, escapes or a query';

const route = members(
  {
    name: v.optional(
      v.pipe(
        v.string("must be a text"),
        v.regex(/^[\x20-\x7e]{1,100}$/, "must be 1 to 100 visible ASCII characters"),
        v.description(
          "What the route is called in its records. Needed for `reconcile`; never reused for another route.",
        ),
      ),
    ),
    methods: v.optional(
      methods("POST and PATCH if left out; every method of a route that is not protected."),
    ),
    path: v.pipe(
      v.string(pathRule),
      v.regex(/^\/$|^(\/(?!\.{1,2}(\/|$))(:[A-Za-z_]\w*|[\w.~!$&'()+,=@-]+))*(\/\*)?$/, pathRule),
      v.nonEmpty(pathRule),
      v.description("`:name` stands for one segment, `*` at the end for one or more."),
    ),
    protect: v.optional(
      v.union(
        [v.boolean(), members(policyEntries, "Protected, by this policy.")],
        "must be true, false, or a map of policies",
      ),
      true,
    ),
    reconcile: v.optional(reconcile),
  },
  "What is done with requests of some methods to some paths.",
);

const rate = (description: string) =>
  members(
    { max: count("How many.", 0), perMs: duration("In any window of this length.", { above0: true }) },
    description,
  );

const limitEntries = {
  newKeys: v.optional(rate("Keys that were not used before.")),
  lookUps: v.optional(rate("Requests with a key, and reads of the status resource.")),
  activeKeys: v.optional(count("Keys that are kept.", 0)),
  storedBytes: v.optional(size("What is kept under them.")),
};

const limits = members(
  {
    ...limitEntries,
    tenants: v.optional(
      v.pipe(
        v.record(v.string(), members(limitEntries, "What one tenant may do."), "must be a map of tenants"),
        v.description("What is different for a tenant, by its name."),
      ),
    ),
  },
  "What each tenant may do, in all gateways together.",
);

const breaker = v.union(
  [
    v.literal(false),
    members(
      {
        failureShare: v.optional(share("Opens when this share of the calls has failed.")),
        slowMs: v.optional(duration("A call that takes longer counts as slow.", { above0: true })),
        slowShare: v.optional(share("Opens when this share of the calls was slow.")),
        minCalls: v.optional(count("Never opens because of fewer calls.")),
        windowMs: v.optional(duration("Calls are counted for this long.", { above0: true })),
        openMs: v.optional(duration("Nothing is asked for this long.", { above0: true })),
        probes: v.optional(count("So many calls have to succeed before it closes.")),
      },
      "When a store that is sick is left alone for a while.",
    ),
  ],
  "must be false, or a map of options",
);

const encryption = members(
  {
    keys: v.pipe(
      v.array(
        members(
          {
            id: text("Stored beside everything that is sealed with the key; never used for another secret."),
            secret: text("32 random bytes, as 64 hexadecimal digits or as base64url."),
          },
          "One key.",
        ),
        "must be a list of keys",
      ),
      v.minLength(1, "is empty: name a key"),
      v.description("The first one seals, all of them open."),
    ),
    perTenant: v.optional(flag("Whether each tenant has a key of its own; true if left out.")),
    refusePlain: v.optional(flag("Refuses what is not sealed; false if left out.")),
  },
  "Seals what is stored of requests and answers.",
);

const metrics = members(
  {
    port: v.optional(port("A port of its own.")),
    host: v.optional(text("Of that port; 127.0.0.1 if left out.")),
    path: v.optional(ownPath("A path of the gateway itself, in place of a port.")),
    token: v.optional(text("What a scraper has to send as a Bearer token.")),
    tenantsMax: v.optional(count("How many tenants are shown with their duplicates.", 0)),
  },
  "For Prometheus; off if left out.",
);

const admin = members(
  {
    port: v.optional(port("A port of its own.")),
    host: v.optional(text("Of that port; 127.0.0.1 if left out.")),
    path: v.optional(ownPath("A path of the gateway itself, in place of a port.")),
    operators: v.pipe(
      v.array(
        members(
          {
            name: text("How the operator is called in the audit trail."),
            token: v.pipe(
              v.string("must be a text"),
              v.check((token) => token.length >= 16, "must have at least 16 characters"),
              v.description("What the operator signs in with."),
            ),
            readOnly: v.optional(flag("Whether it may only look.")),
          },
          "Somebody who may use the admin API.",
        ),
        "must be a list of operators",
      ),
      v.minLength(1, "is empty: name an operator"),
      v.description("Who may use it."),
    ),
    responses: v.optional(choice(["shown", "hidden"], "Whether bodies of answers are shown.")),
    console: v.optional(flag("Whether the console's page is served; true if left out.")),
  },
  "The admin API and the console; off if left out.",
);

const backoff = members(
  {
    baseMs: duration("The first pause.", { above0: true }),
    capMs: duration("The longest pause.", { above0: true }),
  },
  "The pause between two tries; it doubles each time.",
);

const workerOptions = <const Entries extends v.ObjectEntries>(entries: Entries, description: string) =>
  v.optional(
    v.union([v.boolean(), members(entries, description)], "must be true, false, or a map of options"),
    true,
  );

const interval = v.optional(
  duration("How long an idle worker waits before it looks again.", { above0: true }),
);
const batch = v.optional(count("How many at once."));

const workers = v.union(
  [
    v.boolean(),
    members(
      {
        sweeper: workerOptions({ intervalMs: interval, batch }, "Ends executions whose process died."),
        reaper: workerOptions({ intervalMs: interval, batch }, "Removes what is past its retention."),
        reconciler: workerOptions(
          {
            intervalMs: interval,
            batch,
            attemptsMax: v.optional(count("How often upstream is asked before an operator is.")),
            backoff: v.optional(backoff),
          },
          "Settles unknown outcomes by asking.",
        ),
        completer: workerOptions(
          {
            intervalMs: interval,
            batch,
            attemptsMax: v.optional(count("How often a kept request is tried.")),
            backoff: v.optional(backoff),
            dispatchTimeoutMs: v.optional(
              duration("A longer execution is not waited for.", { above0: true }),
            ),
          },
          "Executes accepted requests.",
        ),
      },
      "Which workers run in this process.",
    ),
  ],
  "must be true, false, or a map of workers",
);

const spelling = (description: string) => v.optional(choice(["ignore", "exact"], description), "ignore");

/** The whole configuration of a gateway. The published JSON Schema is made from it. */
export const gatewaySchema = members(
  {
    upstream,
    listen: v.optional(listen, {}),
    store: v.optional(text("Where records live, as a URL."), "sqlite:./latchkey.db"),
    migrate: v.optional(flag("Makes the tables, or brings them up to date, before the port opens."), false),
    tenant,
    jwt: v.optional(jwt),
    defaults: v.optional(
      members(
        { methods: v.optional(methods("What is protected where no route says more.")), ...policyEntries },
        "The policy of every route that does not say otherwise.",
      ),
      {},
    ),
    routes: v.optional(list(route, "The first that matches wins.", "must be a list of routes"), []),
    unmatched: v.optional(
      choice(["protect", "pass"], "What is done with requests that match no route."),
      "protect",
    ),
    matching: v.optional(
      members(
        {
          case: spelling("Whether /Charges is protected as /charges is."),
          trailingSlash: spelling("Whether /charges/ is protected as /charges is."),
          semicolon: spelling("Whether /charges;v=1 is protected as /charges is."),
        },
        "Which spellings of a path a protected route takes for its own. A route that is not protected takes only its own.",
      ),
      {},
    ),
    limits: v.optional(limits),
    breaker: v.optional(breaker),
    expiry: v.optional(choice(["delete", "soft"], "Whether expired records are deleted, or kept for audit.")),
    encryption: v.optional(encryption),
    hashKeys: v.optional(text("A secret of 32 bytes: keys are stored only as what it makes of them.")),
    statusPath: v.optional(ownPath("Where clients learn what became of a request that was accepted.")),
    leaseMs: v.optional(duration("How long a dead gateway holds its keys.", { above0: true })),
    storeTimeoutMs: v.optional(
      duration("A store that takes longer to answer counts as down.", { above0: true }),
    ),
    problemTypeBase: v.optional(httpUrl("What the `type` of a problem document begins with.")),
    logKeys: v.optional(choice(["plain", "digest"], "Whether keys and scopes are logged as they are.")),
    metrics: v.optional(metrics),
    admin: v.optional(admin),
    workers: v.optional(workers, true),
    drainMs: v.optional(duration("How long requests under way are waited for at the end."), 10_000),
  },
  "The configuration of `latchkey gateway`.",
);

/** What a configuration comes to: checked, with every duration in milliseconds and every size in bytes. */
export type GatewayConfig = v.InferOutput<typeof gatewaySchema>;
export type RouteConfig = GatewayConfig["routes"][number];
export type ReconcileConfig = NonNullable<RouteConfig["reconcile"]>;
export type JwtConfig = NonNullable<GatewayConfig["jwt"]>;
export type UpstreamConfig = Exclude<GatewayConfig["upstream"], string>;

function isBase(value: string): boolean {
  if (!isHttpUrl(value)) return false;
  const { search, hash, username, password } = new URL(value);
  return search === "" && hash === "" && username === "" && password === "";
}
