import type { Reservation, ReserveRequest } from "../../core/store.ts";
import { reserving } from "../moves.ts";
import { type Context, forgiving } from "./context.ts";
import type { ItemEntry } from "./record-item.ts";
import type { Change } from "./records.ts";
import { wholeOf } from "./whole.ts";

/**
 * A new key is written at once, on condition that it is new; where it is not, the refusal brings the record, so that a
 * replay takes one round trip as well. Only a worker, who comes for a record that is there, reads first.
 */
export function reserve(context: Context, request: ReserveRequest): Promise<Reservation> {
  return context.records.change(
    request,
    (entry) => decided(context, request, entry),
    request.mode === "claim" ? {} : { assume: "absent" },
  );
}

async function decided(
  context: Context,
  request: ReserveRequest,
  entry: ItemEntry | undefined,
): Promise<Change<Reservation>> {
  const now = context.now();
  const own = entry && ownReservation(request, entry, now);
  if (own !== undefined) return { answer: own };
  const moved = reserving(forgiving(entry, context), request, now);
  const { answer } = moved;
  switch (answer.kind) {
    case "execute":
      return { ...moved, after: answer.after };
    case "replay": {
      if (entry === undefined) return moved;
      const whole = await wholeOf(context, entry, now);
      // If this leads to a write, that is refused, because of what was read first, and brings the record once more.
      if (whole.kind === "changed") return decided(context, request, whole.entry);
      const { record } = whole;
      return record.state === "completed" ? { answer: { ...answer, response: record.response } } : moved;
    }
    case "inFlight":
    case "pending":
    case "absent":
    case "mismatch":
    case "unknown":
      return moved;
    default:
      return answer satisfies never;
  }
}

/** Whoever asked before and got no answer, and asks again under the same name, gets what it was granted then. */
function ownReservation(
  request: ReserveRequest,
  { record, after }: ItemEntry,
  now: number,
): Reservation | undefined {
  if (record.state !== "in_progress" || record.owner !== request.owner || request.mode === "accept") return;
  if (record.fingerprint !== request.fingerprint || record.leaseUntil <= now) return;
  const { scope, key, fence, owner, progress, createdAt } = record;
  const lease = { scope, key, fence, owner };
  return { kind: "execute", after: after ?? "absent", progress, createdAt, lease };
}
