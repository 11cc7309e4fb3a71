import { type JsonSchema, nameOf, ref, type SchemaName, schemas } from "./openapi-schemas.ts";
import { activityWindows } from "./requests.ts";

/** The admin API as an OpenAPI 3.1 document. A test walks it and the routes side by side. */

interface Operation {
  readonly summary: string;
  readonly parameters?: readonly JsonSchema[];
  readonly requestBody?: JsonSchema;
  readonly responses: Readonly<Record<string, JsonSchema>>;
}

const query = (name: string, schema: JsonSchema, description: string, required = false): JsonSchema => ({
  name,
  in: "query",
  required,
  schema,
  description,
});
const json = (schema: JsonSchema): JsonSchema => ({ "application/json": { schema } });
const problem = (description: string): JsonSchema => ({
  description,
  content: { "application/problem+json": { schema: ref("Problem") } },
});

const refusals = {
  "400": problem("Something in the request cannot be used; `errors` names all of it."),
  "401": problem("The token is missing or wrong."),
  "404": problem("There is no such record, or no such path."),
  "405": problem("The path is right and the method is not; `Allow` names those that are."),
  "429": problem("Too many wrong tokens came from this address."),
  "503": problem("The store did not answer. Try again."),
};
const changeRefusals = {
  "403": problem("This operator may look, and not change anything."),
  "409": problem("The record is not what it was: nothing was changed."),
  "413": problem("The body is larger than 1 MiB."),
  "415": problem("The body is not sent as JSON."),
};

function read(
  summary: string,
  answer: SchemaName,
  parameters: readonly JsonSchema[] = [],
): { get: Operation } {
  const responses = { "200": { description: summary, content: json(ref(answer)) }, ...refusals };
  return { get: { summary, parameters, responses } };
}

function change(summary: string, body: SchemaName, answer: SchemaName): { post: Operation } {
  const responses = {
    "200": { description: "It was changed.", content: json(ref(answer)) },
    ...refusals,
    ...changeRefusals,
  };
  return { post: { summary, requestBody: { required: true, content: json(ref(body)) }, responses } };
}

const scope = nameOf(512);
const key = nameOf(255);
const limit = query(
  "limit",
  { type: "integer", minimum: 1, maximum: 1000, default: 50 },
  "How many at most.",
);
const cursor = query("cursor", nameOf(4096), "`next` of the page before.");
const time = { type: "integer", minimum: 0 };
const states = schemas.Record.properties as { readonly state: JsonSchema };

const paths = {
  "/api/session": read("Who is asking, by the token.", "Session"),
  "/api/records": read(
    "Records that all of this is true of, the latest first where the store can.",
    "RecordPage",
    [
      query("state", states.state, "Its state."),
      query("tenant", nameOf(512), "Its tenant, as a list shows it or by its own name."),
      query("key", key, "Its key, whole."),
      query("route", nameOf(1000), "The name of its route."),
      query("from", time, "First reserved at this time or later."),
      query("to", time, "First reserved before this time."),
      limit,
      cursor,
    ],
  ),
  "/api/record": read("One record, whole, with its timeline.", "RecordDetail", [
    query("scope", scope, "Its scope.", true),
    query("key", key, "Its key.", true),
  ]),
  "/api/stats": read("What somebody on call wants to know first.", "Stats"),
  "/api/activity": read(
    "What requests came to over time, in all processes that tell of themselves.",
    "Activity",
    [query("window", { type: "string", enum: Object.keys(activityWindows), default: "1h" }, "How far back.")],
  ),
  "/api/dead-letters": read(
    "Messages that nobody tries to deliver any more, the oldest first.",
    "DeadLetterPage",
    [limit, cursor],
  ),
  "/api/audit": read("What happened off the happy path, the latest first.", "AuditPage", [
    query("scope", scope, "About records of this scope."),
    query("key", key, "About records with this key."),
    limit,
    cursor,
  ]),
  "/api/events": {
    get: {
      summary: "What happens, as it happens: server-sent events named `activity`, each a LiveEvent.",
      parameters: [],
      responses: {
        "200": { description: "The stream.", content: { "text/event-stream": { schema: ref("LiveEvent") } } },
        ...refusals,
      },
    },
  },
  "/api/record/resolve": change("Says what became of an unknown outcome.", "ResolveBody", "Resolved"),
  "/api/record/bust": change("Takes an answer away: the next request is executed.", "BustBody", "Busted"),
  "/api/dead-letters/requeue": change(
    "Gives dead messages all of their attempts again.",
    "RequeueBody",
    "Requeued",
  ),
  "/openapi.json": {
    get: {
      summary: "This document.",
      parameters: [],
      responses: { "200": { description: "This document.", content: json({ type: "object" }) }, ...refusals },
    },
  },
} satisfies Record<string, { get: Operation } | { post: Operation }>;

export const openApi = {
  openapi: "3.1.0",
  info: {
    title: "Latchkey admin API",
    version: "1",
    description: "What an operator sees and does. Paths are relative to where the API is mounted.",
    license: { name: "MIT", identifier: "MIT" },
  },
  servers: [{ url: "." }],
  security: [{ operator: [] }],
  paths,
  components: {
    schemas,
    securitySchemes: { operator: { type: "http", scheme: "bearer" } },
  },
} as const;
