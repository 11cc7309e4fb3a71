import type { PaymentSummary, RequestEnd, TraceEntry } from "../trace.ts";

export type Tone = "good" | "replay" | "wait" | "bad" | "plain";
export type Who = "App" | "Network" | "API" | "Latchkey" | "Provider";

export interface Line {
  readonly at: number;
  readonly who: Who;
  readonly text: string;
  readonly tone: Tone;
  /** How often the same happened in a row. */
  readonly times: number;
}

export function money(cents: number): string {
  return `€${(cents / 100).toFixed(2)}`;
}

// Where many requests are under way at once, what happens to one after the other within a second is told once.
const crowdMin = 8;
const crowdMs = 1_000;

/** What happened, for somebody who has never heard of idempotency. */
export function storyOf(entries: readonly TraceEntry[], { isProtected, requests }: PaymentSummary): Line[] {
  const lines: Line[] = [];
  const isCrowd = requests > crowdMin;
  for (const entry of [...entries].sort((one, other) => one.at - other.at)) {
    const told = lineOf(entry, isProtected);
    if (told === undefined) continue;
    const [who, text, tone = "plain"] = told;
    const same = lines.findLastIndex((line, index) => {
      const isNear = isCrowd ? entry.at - line.at < crowdMs : index === lines.length - 1;
      return isNear && line.text === text && line.who === who;
    });
    const line = lines[same];
    if (line !== undefined) {
      lines[same] = { ...line, times: line.times + 1 };
    } else {
      lines.push({ at: entry.at, who, text, tone, times: 1 });
    }
  }
  return lines;
}

type Told = readonly [who: Who, text: string, tone?: Tone];

function lineOf(entry: TraceEntry, isProtected: boolean): Told | undefined {
  switch (entry.kind) {
    case "request-sent":
      return entry.attempt === 1
        ? ["App", `sends a payment of ${money(entry.amount)}`]
        : ["App", "has no answer to rely on, and sends the same again"];
    case "request-ended":
      return endOf(entry.end);
    case "handler-begun":
      return isProtected ? undefined : ["API", "does as it is told, and asks the provider"];
    case "handler-ended":
    case "call-begun":
      return undefined;
    case "charged":
      return ["Provider", `takes ${money(entry.amount)} from the customer`, "good"];
    case "call-ended":
      return entry.how === "refused"
        ? ["Provider", "is down: it refuses, and takes nothing", "bad"]
        : undefined;
    case "provider-asked":
      return ["Provider", `is asked what became of it, and answers: ${foundTexts[entry.found]}`];
    case "latchkey":
      return latchkeyTexts[`${entry.type} ${entry.outcome}`];
    case "process":
      if (entry.what === "started") return ["API", `is back, as process ${entry.pid}`];
      return entry.what === "killed"
        ? ["API", `is killed in the middle of its work (kill -9, process ${entry.pid})`, "bad"]
        : ["API", `process ${entry.pid} has ended`, "bad"];
    default:
      return entry satisfies never;
  }
}

const foundTexts = {
  charged: "it was charged",
  processing: "it is still being charged",
  nothing: "it was never charged",
} as const;

function endOf(end: RequestEnd): Told {
  switch (end.kind) {
    case "lost":
      return ["Network", `loses the answer (${end.status}): the app cannot know that it has paid`, "bad"];
    case "broken":
      return ["Network", "breaks the connection: nobody is there", "bad"];
    case "given-up":
      return ["App", "has waited long enough and hangs up; the API works on", "wait"];
    case "answered":
      break;
    default:
      return end satisfies never;
  }
  if (end.isReplay) return ["App", `gets the stored answer (${end.status}); nothing ran again`, "replay"];
  if (end.code === "in-flight")
    return ["App", "is told to wait (409): the first request is still at work", "wait"];
  if (end.code === "outcome-unknown") {
    return ["App", "is told to wait (409): nobody knows yet whether it was charged", "wait"];
  }
  if (end.code === "key-reused")
    return ["App", "is refused (422): this key belongs to another payment", "bad"];
  if (end.status < 300) return ["App", `gets its answer (${end.status}): paid`, "good"];
  return ["App", `gets an error (${end.status})`, "bad"];
}

const latchkeyTexts: Readonly<Record<string, Told>> = {
  "reserved created": ["Latchkey", "has not seen this key before: the payment may run, once"],
  "reserved failed_retry": ["Latchkey", "knows that nothing was charged: the payment may run again"],
  "settled completed": ["Latchkey", "stores the answer, before anybody gets it", "good"],
  "settled failed_retryable": ["Latchkey", "frees the key: it is proven that nothing was charged"],
  "reconciled completed": ["Latchkey", "has its proof, and stores the answer for every retry", "good"],
  "reconciled not-executed": ["Latchkey", "has its proof that nothing was charged, and frees the key"],
  "reconciled still-unknown": ["Latchkey", "cannot tell yet, and asks again later", "wait"],
};

/** What it came to, as somebody would say it who looks at the bill. */
export function verdictOf(payment: PaymentSummary): { readonly text: string; readonly tone: Tone } {
  const { requests, charges, charged } = payment;
  const sent = `${requests} ${requests === 1 ? "request" : "requests"}`;
  if (charges === 0) return { text: `Not charged yet: ${sent}`, tone: "plain" };
  if (charges === 1) return { text: `Charged once: ${money(charged)} for ${sent}`, tone: "good" };
  return { text: `Charged ${charges} times: ${money(charged)} for ${sent}`, tone: "bad" };
}
