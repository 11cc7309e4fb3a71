import { recordStates } from "../core/record.ts";
import { activitySeries } from "./views.ts";

/** The views of views.ts as JSON Schema, for the OpenAPI document. A test compares real answers with them. */

export type JsonSchema = { readonly [member: string]: unknown };

const text: JsonSchema = { type: "string" };
const whole: JsonSchema = { type: "integer" };
const time: JsonSchema = { type: "integer", description: "Milliseconds since 1970, on the store's clock." };
const yesOrNo: JsonSchema = { type: "boolean" };
/** Something that is looked for, without control characters. */
export const nameOf = (charactersMax: number): JsonSchema => ({
  type: "string",
  minLength: 1,
  maxLength: charactersMax,
  pattern: "^\\P{Cc}*$",
});
const oneOf = (...values: readonly string[]): JsonSchema => ({ type: "string", enum: values });
const orNull = ({ type, ...rest }: JsonSchema): JsonSchema => ({ ...rest, type: [type, "null"] });
const list = (items: JsonSchema): JsonSchema => ({ type: "array", items });
export const ref = (name: string): JsonSchema => ({ $ref: `#/components/schemas/${name}` });
const refOrNull = (name: string): JsonSchema => ({ anyOf: [ref(name), { type: "null" }] });

/** Every member is there, unless it is named as one that may be left out; no others are. */
function object(properties: Record<string, JsonSchema>, optional: readonly string[] = []): JsonSchema {
  const required = Object.keys(properties).filter((name) => !optional.includes(name));
  return { type: "object", properties, required, additionalProperties: false };
}

const auditedStates = [...recordStates, "dead_letter", "requeued"] as const;

const record = {
  scope: text,
  key: text,
  tenant: text,
  state: oneOf(...recordStates),
  attempt: whole,
  route: orNull(text),
  createdAt: time,
  expiresAt: time,
  completedAt: orNull(time),
  status: orNull(whole),
  reason: orNull(text),
  leaseUntil: orNull(time),
  reconcileAfter: orNull(time),
  reconcileAttempts: orNull(whole),
  escalatedAt: orNull(time),
  resumeAfter: orNull(time),
};

const id = {
  scope: nameOf(512),
  key: nameOf(255),
  attempt: {
    type: "integer",
    minimum: 1,
    maximum: Number.MAX_SAFE_INTEGER,
    description: "The attempt that was looked at: another one is not changed.",
  },
};
const reason: JsonSchema = { type: "string", minLength: 1, maxLength: 1000, pattern: "\\S" };
const short = nameOf(1000);

export const schemas = {
  Record: object(record),
  RecordPage: object({
    records: list(ref("Record")),
    next: orNull(text),
    order: oneOf("latest-first", "unordered"),
    now: time,
  }),
  RecordDetail: object({
    ...record,
    fingerprint: text,
    onCrash: oneOf("reconcile", "resume", "retry"),
    owner: orNull(text),
    phases: list(ref("Phase")),
    response: refOrNull("Response"),
    timeline: list(ref("TimelineEntry")),
    duplicates: refOrNull("Duplicates"),
    now: time,
  }),
  Phase: object({
    kind: oneOf("atomic", "effect"),
    name: text,
    state: oneOf("done", "begun", "failed"),
    result: orNull(text),
    reference: orNull(text),
    idempotencyKey: text,
  }),
  Response: {
    oneOf: [
      object({
        kind: { const: "full" },
        status: whole,
        headers: list({ type: "array", prefixItems: [text, text], minItems: 2, maxItems: 2 }),
        body: text,
        encoding: oneOf("utf8", "base64"),
        bodyBytes: whole,
        isCut: yesOrNo,
      }),
      object({
        kind: { const: "omitted" },
        status: whole,
        bodyBytes: orNull(whole),
        because: oneOf("too-large", "not-redactable", "shredded", "hidden", "sealed"),
      }),
    ],
  },
  TimelineEntry: object({
    at: time,
    attempt: whole,
    from: oneOf("absent", ...auditedStates),
    to: oneOf(...auditedStates),
    by: orNull(text),
    reason: orNull(text),
  }),
  Duplicates: object({ replayed: whole, inProgress: whole, misused: whole, unknown: whole, lastAt: time }),
  Stats: object({
    now: time,
    store: object({ name: text, breaker: oneOf("closed", "open", "half-open", "off") }),
    running: whole,
    unknown: object({ waiting: whole, escalated: whole, oldestMs: { type: "number" } }),
    outbox: orNull(object({ waiting: whole, dead: whole, oldestDueMs: { type: "number" } })),
    processes: list(ref("Process")),
  }),
  Process: object({
    id: text,
    role: text,
    host: text,
    pid: whole,
    startedAt: time,
    seenAt: time,
    isAlive: yesOrNo,
    workers: list(ref("Worker")),
  }),
  Worker: object({
    name: text,
    rounds: whole,
    lastRoundAt: orNull(time),
    counts: { type: "object", additionalProperties: whole },
    errors: whole,
    lastError: orNull(text),
    lastErrorAt: orNull(time),
  }),
  Activity: object({
    from: time,
    stepMs: whole,
    series: object(Object.fromEntries(activitySeries.map((name) => [name, list(whole)]))),
  }),
  DeadLetter: object({
    id: text,
    topic: text,
    key: text,
    scope: text,
    partition: orNull(text),
    correlationId: text,
    attempts: whole,
    createdAt: time,
    diedAt: time,
    error: text,
    payload: orNull(text),
  }),
  DeadLetterPage: object({
    deadLetters: list(ref("DeadLetter")),
    next: orNull(text),
  }),
  AuditEntry: object({
    id: text,
    at: time,
    scope: text,
    key: text,
    attempt: whole,
    from: oneOf(...auditedStates),
    to: oneOf(...auditedStates),
    by: text,
    reason: text,
  }),
  AuditPage: object({ entries: list(ref("AuditEntry")), next: orNull(text) }),
  Session: object({ operator: text, mayChange: yesOrNo }),
  LiveEvent: object({
    at: time,
    type: text,
    outcome: orNull(text),
    scope: orNull(text),
    key: orNull(text),
    detail: orNull(text),
    process: orNull(text),
  }),
  Resolved: object({ kind: { const: "resolved" }, expiresAt: time }),
  Busted: object({ kind: { const: "busted" } }),
  Requeued: object({ requeued: whole }),
  Problem: object(
    {
      type: text,
      title: text,
      status: whole,
      detail: text,
      code: text,
      errors: list(object({ at: text, detail: text })),
    },
    ["errors"],
  ),
  ResolveBody: object({
    ...id,
    verdict: {
      oneOf: [
        object({
          kind: { const: "completed" },
          response: object(
            {
              status: { type: "integer", minimum: 200, maximum: 599 },
              headers: { type: "object", propertyNames: text, additionalProperties: text },
              body: { description: "Text is sent as it is, anything else as JSON." },
            },
            ["headers", "body"],
          ),
        }),
        object({ kind: { const: "effect-done" }, result: {}, reference: short, phase: short }, [
          "reference",
          "phase",
        ]),
        object({ kind: { const: "not-executed" }, reason }, ["reason"]),
        object({ kind: { const: "resume" }, reason }, ["reason"]),
      ],
    },
  }),
  BustBody: object({ ...id, reason }),
  RequeueBody: object({
    ids: {
      type: "array",
      items: nameOf(300),
      minItems: 1,
      maxItems: 1000,
    },
  }),
} satisfies Record<string, JsonSchema>;

export type SchemaName = keyof typeof schemas;
