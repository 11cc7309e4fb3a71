import type { RecordView } from "../../admin/views.ts";
import { recordAddress } from "../route.ts";
import { duration } from "../words.ts";
import { Name } from "./copy.tsx";
import { StateBadge } from "./state-badge.tsx";
import { Time } from "./time.tsx";

interface RecordsTableProps {
  readonly records: readonly RecordView[];
  readonly isLooking: boolean;
}

export function RecordsTable({ records, isLooking }: RecordsTableProps) {
  return (
    <div class="scroll card">
      <table class="records" aria-busy={isLooking} aria-label="Records">
        <thead>
          <tr>
            <th scope="col">key</th>
            <th scope="col">state</th>
            <th scope="col">tenant</th>
            <th scope="col">route</th>
            <th scope="col" class="number">
              attempt
            </th>
            <th scope="col">first reserved</th>
            <th scope="col">what is known</th>
          </tr>
        </thead>
        <tbody>
          {records.map((record) => (
            <tr key={`${record.scope} ${record.key}`}>
              <td>
                <Name text={record.key} what="the key" href={recordAddress(record)} />
              </td>
              <td>
                <StateBadge state={record.state} />
              </td>
              <td class="cut" title={record.scope}>
                {record.tenant}
              </td>
              <td class="cut" title={record.route ?? undefined}>
                {record.route ?? <span class="muted">–</span>}
              </td>
              <td class="number">{record.attempt}</td>
              <td>
                <Time at={record.createdAt} />
              </td>
              <td class="cut what">
                <What record={record} />
              </td>
            </tr>
          ))}
          {records.length === 0 && (
            <tr>
              <td colSpan={7} class="empty">
                {isLooking ? "Looking…" : "No record is like that."}
              </td>
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

/** The one thing that matters about a record in this state. */
function What({ record }: { readonly record: RecordView }) {
  const { state, status, completedAt, createdAt, reason, leaseUntil, resumeAfter, escalatedAt } = record;
  switch (state) {
    case "completed":
      return (
        <>
          <b class={`status status-${Math.floor((status ?? 0) / 100)}`}>{status}</b>{" "}
          <span class="muted">{completedAt !== null && `after ${duration(completedAt - createdAt)}`}</span>
        </>
      );
    case "in_progress":
      return leaseUntil === null ? null : (
        <span class="muted">
          lease ends <Time at={leaseUntil} />
        </span>
      );
    case "unknown":
      return (
        <span title={reason ?? undefined}>
          {escalatedAt !== null && <b class="bad-text">waits for you · </b>}
          {reason}
        </span>
      );
    case "failed_retryable":
      return <span title={reason ?? undefined}>{reason}</span>;
    case "pending":
      return resumeAfter === null ? null : (
        <span class="muted">
          for a worker <Time at={resumeAfter} />
        </span>
      );
    case "expired":
      return <span class="muted">the answer is gone</span>;
    default:
      return state satisfies never;
  }
}
