import * as v from "valibot";
import { jwt, tenant } from "./caller-schema.ts";
import {
  choice,
  count,
  duration,
  flag,
  httpUrl,
  isHttpUrl,
  list,
  members,
  ownPath,
  port,
  size,
  text,
} from "./members.ts";
import { admin, breaker, encryption, limits, metrics, workers } from "./operating-schema.ts";
import { methods, policyEntries } from "./policy-schema.ts";
import { route } from "./route-schema.ts";

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
        waitingMax: v.optional(
          count("How many requests may wait for one of them; more are refused (503).", 0),
        ),
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
    sendTimeoutMs: v.optional(
      duration("How long a client may take in nothing of its answer; 1 min if left out, 0 for ever."),
    ),
    trustForwarded: v.optional(
      flag("Whether Forwarded and X-Forwarded-* of whoever connects are believed and extended, or replaced."),
    ),
  },
  "Where the gateway listens.",
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

function isBase(value: string): boolean {
  if (!isHttpUrl(value)) return false;
  const { search, hash, username, password } = new URL(value);
  return search === "" && hash === "" && username === "" && password === "";
}
