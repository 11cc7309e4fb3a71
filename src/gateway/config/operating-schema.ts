import * as v from "valibot";
import { isOperatorName, isOperatorToken, nameLengthMax } from "../../admin/operators.ts";
import { perMsMax, perMsMin } from "../../engine/limits/options.ts";
import { tenantsMaxMax } from "../../observe/options.ts";
import { choice, count, duration, flag, members, ownPath, port, share, size, span, text } from "./members.ts";

/** What keeps a gateway running, and what shows how it does. */

const rate = (description: string) =>
  members(
    {
      max: count("How many.", 0),
      perMs: span("In any window of this length.", {
        least: perMsMin,
        most: perMsMax,
        bounds: ", from 100ms to 31d",
      }),
    },
    description,
  );

const limitEntries = {
  newKeys: v.optional(rate("Keys that were not used before.")),
  lookUps: v.optional(rate("Requests with a key, and reads of the status resource.")),
  activeKeys: v.optional(count("Keys that are kept.", 0)),
  storedBytes: v.optional(size("What is kept under them.")),
};

export const limits = members(
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

export const breaker = v.union(
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

export const encryption = members(
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

export const metrics = members(
  {
    port: v.optional(port("A port of its own.")),
    host: v.optional(text("Of that port; 127.0.0.1 if left out.")),
    path: v.optional(ownPath("A path of the gateway itself, in place of a port.")),
    token: v.optional(text("What a scraper has to send as a Bearer token.")),
    tenantsMax: v.optional(count("How many tenants are shown with their duplicates.", 0, tenantsMaxMax)),
  },
  "For Prometheus; off if left out.",
);

export const admin = members(
  {
    port: v.optional(port("A port of its own.")),
    host: v.optional(text("Of that port; 127.0.0.1 if left out.")),
    path: v.optional(ownPath("A path of the gateway itself, in place of a port.")),
    operators: v.pipe(
      v.array(
        members(
          {
            name: v.pipe(
              v.string("must be a text"),
              v.check(isOperatorName, `must have 1 to ${nameLengthMax} characters, and not only blanks`),
              v.description("How the operator is called in the audit trail."),
            ),
            token: v.pipe(
              v.string("must be a text"),
              v.check(isOperatorToken, "must have at least 16 visible ASCII characters, without spaces"),
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

export const workers = v.union(
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
