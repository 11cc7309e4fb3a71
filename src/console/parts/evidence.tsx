import type { RecordView } from "../../admin/views.ts";
import { counted } from "../words.ts";
import { Time } from "./time.tsx";

/** Why an outcome is unknown, and what asking has come to. */
export function Evidence({ record }: { readonly record: RecordView }) {
  const { reason, reconcileAttempts, reconcileAfter, escalatedAt, createdAt, attempt } = record;
  return (
    <dl class="facts evidence">
      <div class="whole">
        <dt>why</dt>
        <dd>{reason ?? "Nobody has written down why."}</dd>
      </div>
      <div>
        <dt>attempt</dt>
        <dd class="number">{attempt}</dd>
      </div>
      <div>
        <dt>first reserved</dt>
        <dd>
          <Time at={createdAt} />
        </dd>
      </div>
      <div>
        <dt>asked</dt>
        <dd>{reconcileAttempts ? counted(reconcileAttempts, "time") : "not yet"}</dd>
      </div>
      <div>
        <dt>asked next</dt>
        <dd>
          {escalatedAt !== null ? (
            "not any more"
          ) : reconcileAfter === null ? (
            "–"
          ) : (
            <Time at={reconcileAfter} />
          )}
        </dd>
      </div>
      <div>
        <dt>waits for an operator</dt>
        <dd>
          {escalatedAt === null ? (
            "no"
          ) : (
            <b class="bad-text">
              since <Time at={escalatedAt} />
            </b>
          )}
        </dd>
      </div>
    </dl>
  );
}
