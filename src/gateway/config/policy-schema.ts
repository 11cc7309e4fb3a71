import * as v from "valibot";
import { choice, duration, flag, headerName, list, members, period, size, text } from "./members.ts";

const headerNames = (description: string) =>
  list(headerName("A header's name."), description, "must be a list of header names");

/** Every field of a policy that is data; docs/policies.md says what each means. */
export const policyEntries = {
  profile: v.optional(
    choice(
      ["ietf", "stripe", "acp"],
      "Presets of status codes, header names and outcome policy; ietf if left out.",
    ),
  ),
  required: v.optional(flag("Whether a protected request without a key is refused (400); true if left out.")),
  keyFormat: v.optional(
    choice(["any", "structured", "bare", "uuid"], "Which spellings of a key are accepted."),
  ),
  scope: v.optional(
    choice(
      ["tenant", "tenant+endpoint"],
      "Whether a key is used up for all endpoints of a tenant, or for one.",
    ),
  ),
  mismatchStatus: v.optional(
    choice([400, 409, 422], "The status for a key that comes back with another request."),
  ),
  onInFlight: v.optional(
    choice(
      ["reject", "wait", "accept"],
      "What a duplicate of a running request gets: 409, the answer, or 202.",
    ),
  ),
  waitMs: v.optional(duration("With onInFlight: wait, for how long.")),
  onCrash: v.optional(
    choice(
      ["reconcile", "resume", "retry"],
      "What becomes of a request whose gateway died while upstream had it.",
    ),
  ),
  onServerError: v.optional(
    choice(
      ["retry", "store", "reconcile"],
      "What a 5xx of upstream means: try again, the answer, or nobody knows.",
    ),
  ),
  keepRequest: v.optional(
    flag("Whether the request is kept, until its outcome is known, for the completer."),
  ),
  keepRequestHeaders: v.optional(
    headerNames("Headers that are kept with the request beside those of its body."),
  ),
  personalKeys: v.optional(
    choice(["refuse", "allow"], "What becomes of a key that looks like personal data."),
  ),
  redact: v.optional(
    members(
      {
        headers: v.optional(headerNames("Headers that are not stored.")),
        paths: v.optional(
          list(
            text('Such as "card.number" or "items[*].secret".'),
            "Values of JSON bodies that are not stored.",
          ),
        ),
      },
      "What of an answer is not stored, so that replays come without it.",
    ),
  ),
  onStoreDown: v.optional(
    choice(["closed", "open"], "When the store does not answer: 503, or run unprotected."),
  ),
  lateArrivals: v.optional(
    choice(["allow", "reject"], "What becomes of a request that is too old and has no record."),
  ),
  requestTime: v.optional(
    v.union(
      [
        v.picklist(["key"]),
        members(
          {
            header: headerName("The header that says when the request was first sent."),
            secret: v.optional(text("Shared with the clients, who sign the time with it.")),
            secrets: v.optional(list(text("A secret."), "All that are good right now.")),
          },
          "A header that the client sets once and sends again with each retry.",
        ),
      ],
      'must be "key", or a map with header',
    ),
  ),
  requestAgeMsMax: v.optional(
    period("With lateArrivals: reject, how old a request may be.", { above0: true }),
  ),
  clockSkewMs: v.optional(period("What clocks may differ by.")),
  retentionMs: v.optional(period("How long an answer can be replayed; 24 h if left out.", { above0: true })),
  executionTimeoutMs: v.optional(
    duration("How long an execution may take; 10 min if left out.", { above0: true }),
  ),
  reconcileAfterMs: v.optional(period("When an unknown outcome is first asked about; 30 s if left out.")),
  requestBytesMax: v.optional(size("Larger request bodies are refused (413); 1 MiB if left out.")),
  responseBytesMax: v.optional(size("Larger answers are sent but not kept; 1 MiB if left out.")),
  replayHeaders: v.optional(headerNames("Headers that are stored and replayed beside the common ones.")),
  streaming: v.optional(
    flag("Lets the bytes of the first answer flow before they are stored; false if left out."),
  ),
};

const methodRule = 'must be the name of a method in capitals, such as "POST"';

export const methods = (description: string) =>
  v.pipe(
    v.array(v.pipe(v.string(methodRule), v.regex(/^[A-Z]+$/, methodRule)), "must be a list of methods"),
    v.minLength(1, "is empty: name a method, or leave the member out"),
    v.description(description),
  );
