import { decideBust } from "../../core/bust.ts";
import { StoreError } from "../../core/errors.ts";
import type { RecordId } from "../../core/record.ts";
import type { Bust, BustAnswer, BustGeneration } from "../../core/store.ts";
import type { Row } from "./database.ts";
import type { Queries } from "./queries.ts";
import { type ReadRow, recordOf } from "./rows.ts";
import * as statements from "./statements/busting.ts";
import { read } from "./statements/records.ts";
import { recordName } from "./statements/sql.ts";

export async function bust(
  queries: Queries,
  id: RecordId,
  { by, reason, attempt }: Bust,
): Promise<BustAnswer> {
  const { scope, key } = id;
  for (let round = 0; round < roundsMax; round++) {
    const busted = await queries.all(statements.bust, [
      scope,
      key,
      attempt ?? null,
      by,
      reason,
      bustPayload(id),
    ]);
    if (busted.length > 0) return { kind: "busted" };
    const answer = decideBust(recordOf(id, await queries.one<ReadRow>(read, [scope, key])), attempt);
    // It may have been settled between the two statements.
    if (answer.kind !== "busted") return answer;
  }
  throw new StoreError(`the record changed during each of ${roundsMax} attempts to bust it`);
}

/** With the clock of the same statement. */
export function bustGeneration(queries: Queries): Promise<BustGeneration> {
  return queries.one<BustGeneration & Row>(statements.bustGeneration);
}

/** Each but the first means that the record was settled at that very moment. */
const roundsMax = 5;

const mark = "busted ";

/** What the channel says of a busted record. */
function bustPayload(id: RecordId): string {
  return mark + recordName(id);
}

/** What the channel says when no answer that was kept anywhere is to be given any more. */
export const everythingBusted = `${mark}*`;

/** The name of the record that was busted; undefined if the payload speaks of something else. */
export function bustedName(payload: string): string | undefined {
  return payload.startsWith(mark) ? payload.slice(mark.length) : undefined;
}
