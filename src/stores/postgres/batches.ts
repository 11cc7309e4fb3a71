import { decodeResponse, type EncodedResponse } from "../../core/response.ts";
import type {
  Advance,
  Lease,
  RenewAnswer,
  Reservation,
  ReserveRequest,
  SettleAnswer,
  Settlement,
} from "../../core/store.ts";
import { encodeRequest } from "../../core/stored-request.ts";
import { type BatchFunction, float8, int4, text } from "./arrays.ts";
import { type Answers, held, kindsOf, toldOf } from "./columns.ts";
import type { Row } from "./database.ts";
import { unpackAnswers } from "./packed-answers.ts";
import type { Queries } from "./queries.ts";
import { newRecordOf, newReservation, type ReserveCall } from "./reserving.ts";
import { durationMs } from "./rows.ts";
import { giveUpColumns } from "./settling.ts";
import { allOwnedHere, ownedHere } from "./statements/sql.ts";

/*
 * The calls of a batch as the arrays that the functions of the migrations 0003_batches, 0008_settling_in_place,
 * 0010_settling_by_place, 0012_telling and 0014_replays_in_one_text take, and what their answers mean. Whatever takes more
 * than the clock to answer is left to the statement for one call, which knows all states; so is whatever a lease does not
 * hold any more.
 */

/** What is under way is told of from now on; see `ReserveCall.tells`. `wanted` are the fingerprints for which it is. */
const telling = (scope: string, key: string, wanted: string) =>
  `CASE WHEN lease IS NOT NULL AND print = ${wanted} THEN latchkey_tell_of(${scope}, ${key}) END AS told`;
const tellingAt = (scopesAt: number) => (parameters: readonly string[]) => {
  const [scopes, keys, wanted] = [parameters[scopesAt], parameters[scopesAt + 1], parameters.at(-1)];
  return telling(`(${scopes})[place]`, `(${keys})[place]`, `(${wanted})[place]`);
};

/** The ways to reserve, each also in the name of sessions, and so that what is under way is told of. */
const reserving = {
  some: {
    plain: { name: "latchkey_reserve_batch" },
    owned: { name: "latchkey_reserve_batch", made: { place: 7, of: allOwnedHere } },
    telling: { name: "latchkey_reserve_batch", also: tellingAt(1) },
  },
  fresh: {
    plain: { name: "latchkey_reserve_fresh" },
    owned: { name: "latchkey_reserve_fresh", made: { place: 6, of: allOwnedHere } },
    telling: { name: "latchkey_reserve_fresh", also: tellingAt(0) },
  },
  alike: {
    plain: { name: "latchkey_reserve_alike" },
    owned: { name: "latchkey_reserve_alike", made: { place: 5, of: allOwnedHere } },
    telling: { name: "latchkey_reserve_alike", also: tellingAt(0) },
  },
  known: {
    plain: { name: "latchkey_reserve_known" },
    owned: { name: "latchkey_reserve_known", made: { place: 6, of: allOwnedHere } },
    telling: { name: "latchkey_reserve_known", also: tellingAt(0) },
  },
} satisfies Readonly<Record<string, Readonly<Record<"plain" | "owned" | "telling", BatchFunction>>>>;

const functions = {
  giveUp: { name: "latchkey_give_up_batch" },
  advance: { name: "latchkey_advance_batch" },
  renew: { name: "latchkey_renew_batch" },
} satisfies Readonly<Record<string, BatchFunction>>;

/** Which of the calls of a batch are likely to find a record. The answers are the same, one way is faster than the others. */
export type Expectation = "none" | "some" | "most";

export async function reserveBatch(
  queries: Queries,
  calls: readonly ReserveCall[],
  expectation: Expectation,
): Promise<Answers<Reservation>> {
  const kinds = kindsOf(calls, isSameKind, kindOfReserve);
  const records = kinds.samples.map((call) => newRecordOf(call));
  const requests = calls.map(({ request: { request } }) => request);
  const kept = requests.some((request) => request !== undefined)
    ? requests.map((request) => request && encodeRequest(request))
    : undefined;
  const way = wayOf(records, calls);
  const wanted =
    way === "telling" ? [text(calls, ({ request, tells }) => (tells ? request.fingerprint : null))] : [];
  const areNew = expectation === "none";
  const names = [
    text(calls, ({ request }) => request.scope),
    text(calls, ({ request }) => request.key),
    text(calls, ({ request }) => request.fingerprint),
    text(calls, ({ request }) => (request.mode === "accept" ? null : request.owner)),
  ];
  const crashes = text(records, ({ onCrash }) => onCrash);
  const sessions = int4(records, ({ session }) => session);
  const leases = float8(records, ({ leaseMs }) => leaseMs);
  const retentions = float8(records, ({ retentionMs }) => retentionMs);
  const routes = text(records, ({ route }) => route);
  const reconciles = float8(records, ({ reconcileMs }) => reconcileMs);
  if (areNew && records.length === 1 && records[0]?.state === "in_progress" && kept === undefined) {
    const terms = [crashes, sessions, leases, retentions, routes, reconciles];
    const rows = await queries.batch<AlikeRow>(reserving.alike[way], [...names, ...terms, ...wanted]);
    return reservationsOf(calls, rows, rows[0]?.places?.split(" "));
  }
  const rows = await queries.batch<FoundRow>(reserving[functionFor[expectation]][way], [
    // Whether to look first: where most are known another function does.
    ...(expectation === "some" ? [false] : []),
    ...names,
    int4(kinds.numbers, (number) => number),
    crashes,
    sessions,
    leases,
    retentions,
    text(records, ({ state }) => state),
    routes,
    reconciles,
    { type: "text", values: kept?.map((request) => request?.head ?? null) ?? null },
    { type: "bytea", values: kept?.map((request) => request?.body ?? null) ?? null },
    ...wanted,
  ]);
  return reservationsOf(calls, rows);
}

const functionFor = { none: "fresh", some: "some", most: "known" } as const;

function wayOf(
  records: readonly { readonly session: number | null }[],
  calls: readonly ReserveCall[],
): "plain" | "owned" | "telling" {
  if (records.some(({ session }) => session !== null)) return "owned";
  return calls.some(({ tells }) => tells) ? "telling" : "plain";
}

/** The same for one call, or undefined where only the plain statement knows the answer. */
export async function reserveOne(queries: Queries, call: ReserveCall): Promise<Reservation | undefined> {
  const { request } = call;
  const { onCrash, owner, session, leaseMs, retentionMs, state, route, reconcileMs } = newRecordOf(call);
  const row = await queries.call<FoundRow>(reserveOneStatements[wayOf([{ session }], [call])], [
    request.scope,
    request.key,
    request.fingerprint,
    owner,
    onCrash,
    session,
    leaseMs,
    retentionMs,
    state,
    route,
    reconcileMs,
  ]);
  const now = row.now ?? 0;
  if (row.place !== null) return answerOf(request, row, now);
  return newReservation(request, now);
}

const reserveOneStatement = (session: string, columns = "*") =>
  `SELECT ${columns} FROM latchkey_reserve_one($1, $2, $3, $4, $5, ${session}, $7, $8, $9, $10, $11)`;
const reserveOneStatements = {
  plain: reserveOneStatement("$6"),
  owned: reserveOneStatement(ownedHere("$6")),
  telling: reserveOneStatement("$6", `*, ${telling("$1", "$2", "$3")}`),
};

/**
 * The row of the batch has no place. Rows before it are from looking, and count if nothing had to be inserted. There is none if
 * all calls have answers that are known, which are in the row before everything else.
 */
function reservationsOf(
  calls: readonly ReserveCall[],
  rows: readonly FoundRow[],
  /** Where the rows are, if all of them are new. */
  places: readonly string[] = [],
): Answers<Reservation> {
  const found = new Map<number, Reservation | undefined>();
  const [first] = rows;
  if (first?.place === placeOfKnown) {
    const now = first.now ?? 0;
    for (const answer of unpackAnswers(first.head ?? "")) found.set(answer.place, replayOf(answer, now));
  }
  const batchAt = rows.findIndex(({ place }) => place === null);
  const batch = rows[batchAt];
  if (batch === undefined) return calls.map((_, index) => found.get(index + 1));
  const now = batch.now ?? 0;
  for (const row of batch.status === null ? rows.slice(0, batchAt) : rows.slice(batchAt + 1)) {
    const call = calls[(row.place ?? 0) - 1];
    if (call !== undefined) found.set(row.place ?? 0, answerOf(call.request, row, now));
  }
  return calls.map(({ request }, index) =>
    found.has(index + 1) ? found.get(index + 1) : newReservation(request, now, places[index]),
  );
}

/** The place of the row with all answers that are known: see `unpackAnswers`. */
const placeOfKnown = 0;

/** As `decide` would, in the two states in which nothing but the clock counts. */
function answerOf({ fingerprint }: ReserveRequest, row: FoundRow, now: number): Reservation | undefined {
  const { lease, status, head, body, expires, print } = row;
  if (lease === null && status === null) return undefined;
  if (print !== fingerprint) return { kind: "mismatch" };
  if (lease !== null) {
    const inFlight = { kind: "inFlight", retryAfterMs: lease - now } as const;
    return row.told ? { ...inFlight, isTold: true } : inFlight;
  }
  if (status === null || head === null || expires === null) return undefined;
  return replayOf({ status, head, body, expires }, now);
}

function replayOf(
  { expires, ...encoded }: EncodedResponse & { readonly expires: number },
  now: number,
): Reservation | undefined {
  try {
    const response = decodeResponse(encoded);
    return { kind: "replay", response, expiresAt: expires, remainingMs: expires - now };
  } catch {
    // One that cannot be read must not fail the others: asked alone, it fails on its own.
    return undefined;
  }
}

export interface GiveUpCall {
  readonly lease: Lease;
  readonly settlement: Exclude<Settlement, { kind: "complete" }>;
}

export async function giveUpBatch(
  queries: Queries,
  calls: readonly GiveUpCall[],
): Promise<Answers<SettleAnswer>> {
  const given = calls.map(({ settlement }) => giveUpColumns(settlement));
  const rows = await queries.batch<{ place: number; expires: number }>(functions.giveUp, [
    ...held(calls.map(({ lease }) => lease)),
    text(given, ({ state }) => state),
    text(given, ({ reason }) => reason),
    float8(given, ({ retentionMs }) => retentionMs),
    float8(given, ({ resumeMs }) => resumeMs),
    float8(given, ({ reconcileMs }) => reconcileMs),
  ]);
  const answers: (SettleAnswer | undefined)[] = calls.map(() => undefined);
  for (const { place, expires } of rows) answers[place - 1] = { kind: "settled", expiresAt: expires };
  return answers;
}

export interface AdvanceCall {
  readonly lease: Lease;
  readonly step: Advance;
  /** The step's progress. */
  readonly encoded: string | null;
}

export async function advanceBatch(
  queries: Queries,
  calls: readonly AdvanceCall[],
): Promise<Answers<RenewAnswer>> {
  const rows = await queries.batch<{ places: string | null }>(functions.advance, [
    ...held(calls.map(({ lease }) => lease)),
    text(calls, ({ encoded }) => encoded),
    text(calls, ({ step }) => step.onCrash),
  ]);
  const isHeld = toldOf(rows[0]?.places);
  return calls.map((_, index) => (isHeld(index) ? "held" : undefined));
}

/** The leases are sorted by record. Answers which are certainly held. */
export async function renewBatch(
  queries: Queries,
  leases: readonly Lease[],
  leaseMs: number,
): Promise<(index: number) => boolean> {
  const rows = await queries.batch<{ places: string | null }>(functions.renew, [
    ...held(leases),
    durationMs(leaseMs),
  ]);
  return toldOf(rows[0]?.places);
}

function isSameKind(
  { request: a, session }: ReserveCall,
  { request: b, session: other }: ReserveCall,
): boolean {
  return (
    a.route === b.route &&
    a.mode === b.mode &&
    a.onCrash === b.onCrash &&
    a.leaseMs === b.leaseMs &&
    a.retentionMs === b.retentionMs &&
    a.reconcileAfterMs === b.reconcileAfterMs &&
    session === other
  );
}

function kindOfReserve({ request, session }: ReserveCall): string {
  const { onCrash, leaseMs, retentionMs, mode, route, reconcileAfterMs } = request;
  return JSON.stringify([onCrash, session, leaseMs, retentionMs, mode, reconcileAfterMs, route]);
}

interface FoundRow extends Row {
  readonly place: number | null;
  readonly now: number | null;
  readonly print: string | null;
  readonly lease: number | null;
  readonly status: number | null;
  readonly head: string | null;
  readonly body: Uint8Array | null;
  readonly expires: number | null;
  /** Whether the end of what is under way is told; only where that was asked for. */
  readonly told?: boolean | null;
}

/** The row of a batch whose calls are alike: where its rows are, if all of them are new. */
interface AlikeRow extends FoundRow {
  readonly places: string | null;
}
