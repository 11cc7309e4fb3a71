import { StoreRefusedError, UnreadableError } from "../core/errors.ts";
import type { Administration } from "./administration.ts";
import { openApi } from "./openapi.ts";
import type { Operator } from "./operators.ts";
import { Refusal } from "./refusal.ts";
import { activityWindows, bodies, queries, readBody, readQuery, type Schema } from "./requests.ts";
import type { BustBody, BustedView, RequeuedView, ResolveBody, ResolvedView, SessionView } from "./views.ts";

/** One endpoint of the admin API. One that takes a body changes something. */
export interface Route {
  readonly method: "GET" | "POST";
  readonly query: Schema;
  readonly body?: Schema;
  /** What is sent as JSON; undefined from an endpoint that answers in its own way. */
  answer(asked: Asked): Promise<unknown>;
}

/** One request, as an endpoint sees it. */
export interface Asked {
  readonly administration: Administration;
  readonly operator: Operator;
  /** The raw text behind `?`. */
  readonly query: string;
  /** As parsed from JSON. */
  readonly body: unknown;
  /** Answers with what happens, from now on. */
  stream(): void;
}

/** Every endpoint, by its path. */
export const routes: ReadonlyMap<string, Route> = new Map<string, Route>([
  [
    "/api/session",
    {
      method: "GET",
      query: queries.none,
      async answer({ operator }): Promise<SessionView> {
        return { operator: operator.name, mayChange: operator.readOnly !== true };
      },
    },
  ],
  [
    "/api/records",
    {
      method: "GET",
      query: queries.records,
      answer({ administration, query }) {
        const { from, to, ...rest } = readQuery(queries.records, query);
        return goneOn(rest, () => administration.records({ ...rest, createdFrom: from, createdBefore: to }));
      },
    },
  ],
  [
    "/api/record",
    {
      method: "GET",
      query: queries.record,
      async answer({ administration, query }) {
        const found = await administration.record(readQuery(queries.record, query));
        if (found !== undefined) return found;
        throw new Refusal(
          404,
          "record-not-found",
          "There is no record with this scope and key, or not any more.",
        );
      },
    },
  ],
  [
    "/api/stats",
    {
      method: "GET",
      query: queries.none,
      answer: ({ administration }) => administration.stats(),
    },
  ],
  [
    "/api/activity",
    {
      method: "GET",
      query: queries.activity,
      answer({ administration, query }) {
        return administration.activity(activityWindows[readQuery(queries.activity, query).window]);
      },
    },
  ],
  [
    "/api/dead-letters",
    {
      method: "GET",
      query: queries.page,
      answer({ administration, query }) {
        const asked = readQuery(queries.page, query);
        return goneOn(asked, () => administration.deadLetters(asked));
      },
    },
  ],
  [
    "/api/audit",
    {
      method: "GET",
      query: queries.audit,
      answer({ administration, query }) {
        const asked = readQuery(queries.audit, query);
        return goneOn(asked, () => administration.audit(asked));
      },
    },
  ],
  [
    "/api/events",
    {
      method: "GET",
      query: queries.none,
      async answer({ stream }) {
        stream();
      },
    },
  ],
  ["/openapi.json", { method: "GET", query: queries.none, answer: async () => openApi }],
  [
    "/api/record/resolve",
    {
      method: "POST",
      query: queries.none,
      body: bodies.resolve,
      answer: ({ administration, operator, body }) =>
        resolve(administration, readBody(bodies.resolve, body), operator.name),
    },
  ],
  [
    "/api/record/bust",
    {
      method: "POST",
      query: queries.none,
      body: bodies.bust,
      answer: ({ administration, operator, body }) =>
        bust(administration, readBody(bodies.bust, body), operator.name),
    },
  ],
  [
    "/api/dead-letters/requeue",
    {
      method: "POST",
      query: queries.none,
      body: bodies.requeue,
      async answer({ administration, operator, body }): Promise<RequeuedView> {
        return { requeued: await administration.requeue(readBody(bodies.requeue, body), operator.name) };
      },
    },
  ],
]);

async function resolve(administration: Administration, body: ResolveBody, by: string): Promise<ResolvedView> {
  const answer = await administration.resolve(body, by);
  switch (answer.kind) {
    case "resolved":
      return answer;
    case "not-unknown":
      throw new Refusal(
        409,
        "not-unknown",
        answer.state === "unknown"
          ? "Another attempt is unknown by now: look at it again."
          : `Its outcome is not unknown any more, it is ${answer.state}: look at it again.`,
      );
    case "still-unknown":
      throw new Refusal(400, "invalid", "This is no verdict: say what became of it.");
    default:
      return answer satisfies never;
  }
}

async function bust(administration: Administration, body: BustBody, by: string): Promise<BustedView> {
  const answer = await administration.bust(body, by);
  switch (answer.kind) {
    case "busted":
      return answer;
    case "nothing":
      throw new Refusal(409, "nothing-to-bust", `There is no answer to take away: it is ${answer.state}.`);
    case "not-settled":
      throw new Refusal(
        409,
        "not-settled",
        `It is ${answer.state}, and nothing was changed: ${answer.instead}.`,
      );
    case "another-attempt":
      throw new Refusal(
        409,
        "another-attempt",
        `The answer is that of attempt ${answer.attempt} by now, and nothing was changed: look at it again.`,
      );
    default:
      return answer satisfies never;
  }
}

/** A page that cannot be gone on from is whoever's asked for it; one that nobody has named a place for is the store's. */
async function goneOn<T>(
  { cursor }: { readonly cursor?: string | undefined },
  page: () => Promise<T>,
): Promise<T> {
  try {
    return await page();
  } catch (error) {
    if (cursor === undefined || !(error instanceof StoreRefusedError) || error instanceof UnreadableError) {
      throw error;
    }
    const { message } = error;
    throw new Refusal(400, "invalid", `This cursor cannot be used: ${message}.`, {
      errors: [{ at: "cursor", detail: message }],
    });
  }
}
