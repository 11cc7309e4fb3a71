import type { RequestEnd, TraceEntry } from "../trace.ts";
import type { Interval } from "./axis.ts";
import type { Tone } from "./words.ts";

/** Something that took time, in one of the three lanes. */
export interface Bar extends Interval {
  readonly id: number;
  readonly tone: Tone;
  readonly isOpen: boolean;
  readonly label: string;
  /** The line of its lane that it is drawn in, so that bars do not lie on each other. */
  readonly row: number;
}

export interface Scene {
  readonly requests: readonly Bar[];
  /** The work of the API's own code; `id` is the request that it is for. */
  readonly handlers: readonly Bar[];
  readonly calls: readonly Bar[];
  readonly charges: readonly { readonly at: number; readonly call: number }[];
  /** When the reconciler asked the provider. */
  readonly questions: readonly number[];
  /** When the API had no process. */
  readonly outages: readonly (Interval & { readonly isOpen: boolean })[];
}

/** What of the trace can be drawn. What has not ended yet is drawn until `now`. */
export function sceneOf(entries: readonly TraceEntry[], now: number): Scene {
  const requests = new Map<number, Draft>();
  const handlers = new Map<number, Draft>();
  const calls = new Map<number, Draft>();
  const charges: { at: number; call: number }[] = [];
  const questions: number[] = [];
  const outages: (Interval & { isOpen: boolean })[] = [];
  for (const entry of [...entries].sort((one, other) => one.at - other.at)) {
    const { at } = entry;
    switch (entry.kind) {
      case "request-sent":
        requests.set(
          entry.request,
          open(at, entry.request, entry.attempt === 1 ? "sent" : `try ${entry.attempt}`),
        );
        break;
      case "request-ended":
        end(requests, entry.request, at, requestEnd(entry.end));
        break;
      case "handler-begun":
        handlers.set(entry.request, open(at, entry.request, "works"));
        break;
      case "handler-ended":
        end(handlers, entry.request, at, handlerEnds[entry.how]);
        break;
      case "call-begun":
        calls.set(entry.call, open(at, entry.call, "charging"));
        break;
      case "charged":
        charges.push({ at, call: entry.call });
        break;
      case "call-ended":
        end(calls, entry.call, at, callEnds[entry.how]);
        break;
      case "provider-asked":
        questions.push(at);
        break;
      case "process":
        if (entry.what === "started") {
          const outage = outages.at(-1);
          if (outage?.isOpen) outages[outages.length - 1] = { from: outage.from, to: at, isOpen: false };
        } else {
          outages.push({ from: at, to: now, isOpen: true });
        }
        break;
      case "latchkey":
        break;
      default:
        entry satisfies never;
    }
  }
  return {
    requests: inRows(requests, now),
    handlers: inRows(handlers, now),
    calls: inRows(calls, now),
    charges,
    questions,
    outages,
  };
}

interface Draft {
  readonly id: number;
  readonly from: number;
  readonly to: number | undefined;
  readonly tone: Tone;
  readonly label: string;
}

type End = readonly [tone: Tone, label: string];

const handlerEnds: Readonly<Record<"answered" | "failed" | "killed", End>> = {
  answered: ["good", "done"],
  failed: ["bad", "failed"],
  killed: ["bad", ""], // The outage that follows has the word.
};

const callEnds: Readonly<Record<"answered" | "refused" | "unheard", End>> = {
  answered: ["good", ""],
  refused: ["bad", "refused"],
  unheard: ["bad", "nobody heard"],
};

function requestEnd(how: RequestEnd): End {
  switch (how.kind) {
    case "lost":
      return ["bad", "answer lost"];
    case "broken":
      return ["bad", "broken"];
    case "given-up":
      return ["wait", "gave up waiting"];
    case "answered":
      if (how.isReplay) return ["replay", `${how.status} replayed`];
      if (how.status < 300) return ["good", `${how.status} paid`];
      return how.status === 409 ? ["wait", "409 wait"] : ["bad", `${how.status} ${wordFor(how.status)}`];
    default:
      return how satisfies never;
  }
}

function wordFor(status: number): string {
  return status < 500 ? "refused" : "error";
}

function open(from: number, id: number, label: string): Draft {
  return { id, from, to: undefined, tone: "plain", label };
}

function end(drafts: Map<number, Draft>, id: number, to: number, [tone, label]: End): void {
  const draft = drafts.get(id);
  if (draft !== undefined) drafts.set(id, { ...draft, to, tone, label });
}

const bodyMs = 30; // What lies closer together than this would look like one bar.

/** Each bar in the first line that is free. */
function inRows(drafts: ReadonlyMap<number, Draft>, now: number): Bar[] {
  const freeFrom: number[] = [];
  return [...drafts.values()].map(({ to, ...draft }) => {
    const until = to ?? Math.max(now, draft.from);
    const free = freeFrom.findIndex((from) => from <= draft.from);
    const row = free === -1 ? freeFrom.length : free;
    freeFrom[row] = until + bodyMs;
    return { ...draft, to: until, isOpen: to === undefined, row };
  });
}
