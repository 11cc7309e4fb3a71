import { encodeResponse } from "../../core/response.ts";
import type { Lease, SettleAnswer, Settlement } from "../../core/store.ts";
import { PlacedLease } from "../placed-lease.ts";
import { type BatchFunction, float8, int4, text } from "./arrays.ts";
import { type Answers, held, kindsOf, toldOf } from "./columns.ts";
import type { Row } from "./database.ts";
import type { Queries } from "./queries.ts";
import { durationMs } from "./rows.ts";

/*
 * Completing requests by the functions of the migrations 0008_settling_in_place and 0011_strays.
 */

const functions = {
  each: { name: "latchkey_complete_batch" },
  alike: { name: "latchkey_complete_alike" },
} satisfies Readonly<Record<string, BatchFunction>>;

export interface CompleteCall {
  readonly lease: Lease;
  readonly settlement: Extract<Settlement, { kind: "complete" }>;
}

/** What became of a batch, and whether most of its rows were not where they had been. */
export interface Completed {
  readonly answers: Answers<SettleAnswer>;
  readonly strays: boolean;
}

/** `byPlace`: whether rows are looked for where they were reserved, as far as that is known. */
export async function completeBatch(
  queries: Queries,
  calls: readonly CompleteCall[],
  { byPlace }: { readonly byPlace: boolean },
): Promise<Completed> {
  const encoded = calls.map(completionOf);
  const places = byPlace ? placesIfAlike(calls, encoded) : undefined;
  const [row] = await (places === undefined
    ? completeEach(queries, calls, encoded)
    : completeAlike(queries, calls, encoded, places));
  const isHeld = toldOf(row?.places);
  const now = row?.now ?? 0;
  const answers = encoded.map(({ retentionMs }, index): SettleAnswer | undefined =>
    isHeld(index) ? { kind: "settled", expiresAt: now + retentionMs } : undefined,
  );
  return { answers, strays: row?.strays ?? false };
}

interface CompletedRow extends Row {
  readonly now: number;
  readonly places: string | null;
  readonly strays?: boolean;
}

function completeEach(
  queries: Queries,
  calls: readonly CompleteCall[],
  encoded: readonly Encoded[],
): Promise<readonly CompletedRow[]> {
  const kinds = kindsOf(
    encoded,
    (a, b) => a.status === b.status && a.retentionMs === b.retentionMs && a.head === b.head,
    ({ status, head, retentionMs }) => `${status},${retentionMs},${head}`,
  );
  return queries.batch<CompletedRow>(functions.each, [
    ...held(calls.map(({ lease }) => lease)),
    { type: "bytea", values: encoded.map(({ body }) => body) },
    int4(kinds.numbers, (number) => number),
    int4(kinds.samples, ({ status }) => status),
    text(kinds.samples, ({ head }) => head),
    float8(kinds.samples, ({ retentionMs }) => retentionMs),
  ]);
}

function completeAlike(
  queries: Queries,
  calls: readonly CompleteCall[],
  encoded: readonly Encoded[],
  places: readonly string[],
): Promise<readonly CompletedRow[]> {
  const first = encoded.slice(0, 1);
  const isOneHead = encoded.every(({ head }) => head === first[0]?.head);
  return queries.batch<CompletedRow>(functions.alike, [
    { type: "tid", values: places },
    ...held(calls.map(({ lease }) => lease)),
    { type: "bytea", values: encoded.map(({ body }) => body) },
    text(isOneHead ? first : encoded, ({ head }) => head),
    int4(first, ({ status }) => status),
    float8(first, ({ retentionMs }) => retentionMs),
  ]);
}

/** Where the rows are, if that is known of all, and all answers have one status and are kept for one time. */
function placesIfAlike(calls: readonly CompleteCall[], encoded: readonly Encoded[]): string[] | undefined {
  const [first] = encoded;
  const places: string[] = [];
  for (const [index, { lease }] of calls.entries()) {
    const place = PlacedLease.placeOf<string>(lease);
    const each = encoded[index];
    if (place === undefined || each?.status !== first?.status || each?.retentionMs !== first?.retentionMs) {
      return undefined;
    }
    places.push(place);
  }
  return places;
}

/** The same for one call, or undefined if the lease does not hold the record any more. */
export async function completeOne(queries: Queries, call: CompleteCall): Promise<SettleAnswer | undefined> {
  const { status, head, body, retentionMs } = completionOf(call);
  const { lease } = call;
  const { now } = await queries.call<{ now: number | null }>(
    "SELECT latchkey_complete_one($1, $2, $3, $4, $5, $6, $7, $8) AS now",
    [lease.scope, lease.key, lease.fence, lease.owner, status, head, body, retentionMs],
  );
  return now === null ? undefined : { kind: "settled", expiresAt: now + retentionMs };
}

/** In whole milliseconds, so that when it expires can be told from the time of the batch. */
export function completionOf({ settlement }: CompleteCall): Encoded {
  const retentionMs = Math.round(durationMs(settlement.retentionMs));
  const { status, head, body } = encodeResponse(settlement.response);
  return { status, head, body, retentionMs };
}

interface Encoded {
  readonly status: number;
  readonly head: string;
  readonly body: Uint8Array | null;
  readonly retentionMs: number;
}
