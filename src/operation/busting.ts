import { auditReasons } from "../core/audit.ts";
import { insteadOfBusting } from "../core/bust.ts";
import type { RecordId } from "../core/record.ts";
import type { BustAnswer } from "../core/store.ts";
import { reasonCharactersMax, storableText } from "../core/text.ts";
import type { Engine } from "../engine/engine.ts";
import { type RequestName, saidBy } from "./request-name.ts";

/** An operator says that the answer to a request is not to be replayed any more. */
export interface BustRequest {
  readonly of: RequestName;
  /** The attempt whose answer it is, if it is known: the answer of another one stays. */
  readonly attempt?: number;
  /** Who says so, and why; kept in the audit trail. */
  readonly by: string;
  readonly reason?: string;
}

/** What became of it; where it was refused, `instead` says what an operator can do. */
export type Busted =
  | Exclude<BustAnswer, { kind: "not-settled" }>
  | (Extract<BustAnswer, { kind: "not-settled" }> & { readonly instead: string });

export async function bust(
  engine: Engine,
  request: BustRequest,
  named?: (id: RecordId) => RecordId,
): Promise<Busted> {
  const { id, by } = saidBy("bust", request, named);
  const reason = storableText(request.reason ?? auditReasons.busted, reasonCharactersMax);
  const answer = await engine.bust(id, { by, reason, attempt: request.attempt });
  switch (answer.kind) {
    case "busted":
      engine.events.emit({ type: "busted", scope: id.scope, key: id.key, by, reason });
      return answer;
    case "not-settled":
      return { ...answer, instead: insteadOfBusting[answer.state] };
    case "nothing":
    case "another-attempt":
      return answer;
    default:
      return answer satisfies never;
  }
}
