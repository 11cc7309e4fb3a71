import type { RecordDetailView, RecordView, ResponseView } from "../admin/views.ts";
import type { RecordState } from "../core/record.ts";
import { type Screen, type Style, visible, visibleLines } from "./screen.ts";
import { type Column, facts, Table } from "./table.ts";
import { absolute, both, relative } from "./times.ts";

/** What needs somebody stands out. */
const stateStyles: Readonly<Record<RecordState, Style>> = {
  pending: "cyan",
  in_progress: "blue",
  completed: "green",
  failed_retryable: "yellow",
  unknown: "red",
  expired: "dim",
};

/** One line for each record. */
export function recordTable(screen: Screen, now: number): Table<RecordView> {
  const columns: readonly Column<RecordView>[] = [
    {
      title: "STATE",
      text: ({ state }) => state,
      paint: (shown, padded, { state }) => shown.paint(stateStyles[state], padded),
    },
    // As long as a UUID, because it is what somebody copies.
    { title: "KEY", text: ({ key }) => visible(key), widthMin: 36 },
    { title: "SCOPE", text: ({ scope }) => visible(scope), widthMin: 8 },
    { title: "ROUTE", text: ({ route }) => visible(route ?? "-"), widthMin: 6, isDispensable: true },
    { title: "STATUS", text: ({ status }) => (status === null ? "-" : String(status)), isNumber: true },
    { title: "ATTEMPT", text: ({ attempt }) => String(attempt), isNumber: true, isDispensable: true },
    { title: "CREATED", text: ({ createdAt }) => relative(createdAt, now), isNumber: true },
    { title: "NOTE", text: (record) => visible(noteOf(record, now)), widthMin: 6, isDispensable: true },
  ];
  return new Table(screen, columns);
}

/** What somebody would ask next about it. */
function noteOf(record: RecordView, now: number): string {
  const { state, escalatedAt, reconcileAfter, reason, leaseUntil, resumeAfter, expiresAt } = record;
  switch (state) {
    case "unknown":
      if (escalatedAt !== null) return `waits for an operator: ${reason}`;
      return `asked again ${reconcileAfter === null ? "later" : relative(reconcileAfter, now)}: ${reason}`;
    case "in_progress":
      return leaseUntil === null ? "" : `lease until ${relative(leaseUntil, now)}`;
    case "pending":
      return resumeAfter === null ? "" : `due ${relative(resumeAfter, now)}`;
    case "failed_retryable":
      return reason ?? "";
    case "completed":
    case "expired":
      return `expires ${relative(expiresAt, now)}`;
    default:
      return state satisfies never;
  }
}

/** One record, whole, for somebody who has to decide something about it. */
export function recordText(screen: Screen, record: RecordDetailView): string {
  const { now, state, phases, response, duplicates } = record;
  const rows: (readonly [string, string])[] = [
    ["key", visible(record.key)],
    ["scope", visible(record.scope)],
    ["state", screen.paint(stateStyles[state], state)],
    ["attempt", String(record.attempt)],
    ["route", visible(record.route ?? "-")],
    ["created", both(record.createdAt, now)],
    ...moment("completed", record.completedAt, now),
    ["expires", both(record.expiresAt, now)],
    ...moment("lease until", record.leaseUntil, now),
    ...(record.owner === null ? [] : [["owner", visible(record.owner)] as const]),
    ...moment("resumes", record.resumeAfter, now),
    ...moment("asked next", record.escalatedAt === null ? record.reconcileAfter : null, now),
    ...(record.reconcileAttempts === null ? [] : [["asked", `${record.reconcileAttempts} times`] as const]),
    ...moment("waits for an operator since", record.escalatedAt, now),
    ...(record.reason === null ? [] : [["reason", visible(record.reason)] as const]),
    ["on crash", record.onCrash],
    ["fingerprint", visible(record.fingerprint)],
  ];
  if (duplicates !== null) {
    const { replayed, inProgress, misused, unknown } = duplicates;
    rows.push([
      "duplicates",
      `${replayed} replayed, ${inProgress} while running, ${misused} with another request, ${unknown} while unknown`,
    ]);
  }
  return [
    facts(screen, rows),
    ...(phases.length === 0 ? [] : [heading(screen, "phases"), phaseTable(screen, record)]),
    heading(screen, "timeline"),
    timelineTable(screen, record),
    ...(response === null ? [] : [heading(screen, "response"), responseText(screen, response)]),
  ].join("");

  function moment(name: string, at: number | null, seenAt: number): (readonly [string, string])[] {
    return at === null ? [] : [[name, both(at, seenAt)]];
  }
}

function heading(screen: Screen, title: string): string {
  return `\n${screen.paint("bold", title)}\n`;
}

function phaseTable(screen: Screen, { phases }: RecordDetailView): string {
  const columns: readonly Column<RecordDetailView["phases"][number]>[] = [
    { title: "PHASE", text: ({ name }) => visible(name), widthMin: 8 },
    { title: "KIND", text: ({ kind }) => kind },
    {
      title: "STATE",
      text: ({ state }) => state,
      paint: (shown, padded, { state }) => (state === "begun" ? shown.paint("red", padded) : padded),
    },
    { title: "REFERENCE", text: ({ reference }) => visible(reference ?? "-"), widthMin: 6 },
    { title: "DOWNSTREAM KEY", text: ({ idempotencyKey }) => idempotencyKey },
    { title: "RESULT", text: ({ result }) => visible(result ?? "-"), widthMin: 6, isDispensable: true },
  ];
  return new Table(screen, columns).text(phases);
}

function timelineTable(screen: Screen, { timeline, now }: RecordDetailView): string {
  const columns: readonly Column<RecordDetailView["timeline"][number]>[] = [
    { title: "AT", text: ({ at }) => absolute(at) },
    { title: "", text: ({ at }) => relative(at, now), isNumber: true },
    { title: "ATTEMPT", text: ({ attempt }) => String(attempt), isNumber: true },
    { title: "CHANGE", text: ({ from, to }) => `${from} -> ${to}` },
    { title: "BY", text: ({ by }) => visible(by ?? "the request"), widthMin: 6 },
    { title: "WHY", text: ({ reason }) => visible(reason ?? ""), widthMin: 6 },
  ];
  return new Table(screen, columns).text(timeline);
}

/** Why the body of an answer is not there to be shown. */
const omissions: Readonly<Record<Extract<ResponseView, { kind: "omitted" }>["because"], string>> = {
  "too-large": "it was larger than its route keeps",
  "not-redactable": "its route's redaction could not be applied, so it was not kept",
  shredded: "the tenant's key was removed, and nobody can read it any more",
  hidden: "it is not shown here",
  sealed: "it is encrypted, and LATCHKEY_ENCRYPTION_KEYS does not have its key",
};

function responseText(screen: Screen, response: ResponseView): string {
  const status = screen.paint("bold", String(response.status));
  if (response.kind === "omitted") {
    const { bodyBytes, because } = response;
    const size = bodyBytes === null ? "" : ` of ${bodyBytes} bytes`;
    return `${status}\nThe body${size} cannot be read: ${omissions[because]}.\n`;
  }
  const { headers, body, encoding, bodyBytes, isCut } = response;
  const lines = headers.map(([name, value]) => `${screen.paint("dim", `${name}:`)} ${visible(value)}\n`);
  const about = [`${bodyBytes} bytes`, encoding === "base64" ? "as base64" : "", isCut ? "cut off here" : ""];
  return [
    `${status}\n`,
    ...lines,
    "\n",
    `${visibleLines(body)}\n`,
    screen.paint("dim", `(${about.filter((part) => part !== "").join(", ")})`),
    "\n",
  ].join("");
}
