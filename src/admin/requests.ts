import * as v from "valibot";
import { recordStates } from "../core/record.ts";
import { Refusal } from "./refusal.ts";
import type { ProblemView } from "./views.ts";

/** What requests to the admin API may say. What is not named here is refused. */

/** The windows that activity is shown for, and the steps of each. */
export const activityWindows = {
  "15m": { windowMs: 900_000, stepMs: 10_000 },
  "1h": { windowMs: 3_600_000, stepMs: 10_000 },
  "6h": { windowMs: 21_600_000, stepMs: 60_000 },
  "24h": { windowMs: 86_400_000, stepMs: 60_000 },
  "7d": { windowMs: 604_800_000, stepMs: 600_000 },
} as const;
export type ActivityWindow = keyof typeof activityWindows;

const text = (charactersMax: number) =>
  v.pipe(
    v.string("must be text"),
    v.minLength(1, "must not be empty"),
    v.maxLength(charactersMax, `must be at most ${charactersMax} characters`),
  );
/** Something that is looked for: no store has it with a control character, and some cannot even be asked. */
const name = (charactersMax: number) =>
  v.pipe(text(charactersMax), v.regex(/^\P{Cc}*$/u, "must not hold control characters"));
const digits = (max: number, sentence: string) =>
  v.pipe(v.string(sentence), v.regex(/^\d{1,15}$/, sentence), v.transform(Number), v.maxValue(max, sentence));
const limit = v.optional(
  v.pipe(
    digits(1000, "must be a whole number from 1 to 1000"),
    v.minValue(1, "must be a whole number from 1 to 1000"),
  ),
);
const time = v.optional(digits(8.64e15, "must be milliseconds since 1970"));
const scope = name(512);
const key = name(255);
const cursor = v.optional(name(4096));

export const queries = {
  none: v.strictObject({}),
  records: v.strictObject({
    state: v.optional(v.picklist(recordStates, `must be one of ${recordStates.join(", ")}`)),
    tenant: v.optional(name(512)),
    key: v.optional(key),
    route: v.optional(name(1000)),
    from: time,
    to: time,
    limit,
    cursor,
  }),
  record: v.strictObject({ scope, key }),
  activity: v.strictObject({
    window: v.optional(
      v.picklist(
        Object.keys(activityWindows) as ActivityWindow[],
        `must be one of ${Object.keys(activityWindows).join(", ")}`,
      ),
      "1h",
    ),
  }),
  page: v.strictObject({ limit, cursor }),
  audit: v.strictObject({ scope: v.optional(scope), key: v.optional(key), limit, cursor }),
};

const attempt = v.pipe(
  v.number("must be a number"),
  v.safeInteger("must be a whole number"),
  v.minValue(1, "must be at least 1"),
);
const reason = v.pipe(text(1000), v.regex(/\S/, "must not be blank"));

export const bodies = {
  resolve: v.strictObject({
    scope,
    key,
    attempt,
    verdict: v.variant(
      "kind",
      [
        v.strictObject({
          kind: v.literal("completed"),
          response: v.strictObject({
            status: v.pipe(
              v.number("must be a number"),
              v.integer("must be a whole number"),
              v.minValue(200, "must be from 200 to 599"),
              v.maxValue(599, "must be from 200 to 599"),
            ),
            headers: v.exactOptional(v.record(v.string(), v.string("must be text"))),
            body: v.exactOptional(v.unknown()),
          }),
        }),
        v.strictObject({
          kind: v.literal("effect-done"),
          result: v.unknown(),
          reference: v.exactOptional(name(1000)),
          phase: v.exactOptional(name(1000)),
        }),
        v.strictObject({ kind: v.literal("not-executed"), reason: v.exactOptional(reason) }),
        v.strictObject({ kind: v.literal("resume"), reason: v.exactOptional(reason) }),
      ],
      "must have a kind: completed, effect-done, not-executed or resume",
    ),
  }),
  bust: v.strictObject({ scope, key, attempt, reason }),
  requeue: v.strictObject({
    ids: v.pipe(
      v.array(name(300), "must be a list of ids"),
      v.minLength(1, "must not be empty"),
      v.maxLength(1000, "must be at most 1000 ids"),
    ),
  }),
};

export type Schema = v.GenericSchema<unknown, unknown>;

/** A query as the schema has it; everything that is wrong with it is said at once. */
export function readQuery<S extends Schema>(schema: S, text: string): v.InferOutput<S> {
  const given = new URLSearchParams(text);
  const twice = [...new Set(given.keys())].filter((name) => given.getAll(name).length > 1);
  const values: unknown = Object.fromEntries(given);
  const errors = twice.map((at) => ({ at, detail: "is given more than once" }));
  return read(schema, values, { what: "query parameters", errors });
}

export function readBody<S extends Schema>(schema: S, value: unknown): v.InferOutput<S> {
  return read(schema, value, { what: "members of the body", errors: [] });
}

function read<S extends Schema>(
  schema: S,
  value: unknown,
  said: { readonly what: string; readonly errors: NonNullable<ProblemView["errors"]> },
): v.InferOutput<S> {
  const result = v.safeParse(schema, value);
  const errors = [...said.errors, ...(result.issues ?? []).map(complaintOf)];
  if (result.success && errors.length === 0) return result.output;
  const sentences = errors.map(({ at, detail }) => (at === "" ? `the body ${detail}` : `${at} ${detail}`));
  throw new Refusal(400, "invalid", `These ${said.what} cannot be used: ${sentences.join("; ")}.`, {
    errors,
  });
}

function complaintOf(issue: v.BaseIssue<unknown>): { readonly at: string; readonly detail: string } {
  const at = v.getDotPath(issue) ?? "";
  if (issue.expected === "never") return { at, detail: "is not known here" };
  if (issue.received === "undefined") return { at, detail: "is missing" };
  return {
    at,
    detail: issue.kind === "schema" && issue.type.endsWith("object") ? "must be an object" : issue.message,
  };
}
