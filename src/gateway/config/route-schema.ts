import * as v from "valibot";
import { duration, headerName, isHttpUrl, list, members } from "./members.ts";
import { methods, policyEntries } from "./policy-schema.ts";

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

/** Which requests are protected, and how. */
export const route = members(
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
