import type { Message } from "../core/outbox.ts";

/** The message that a row of an outbox table is, by the names of its columns. */
export function messageOf(id: unknown, row: Readonly<Record<string, unknown>>): Message {
  return {
    id: String(id),
    topic: row.topic as string,
    partition: row.partition_key as string | null,
    payload: row.payload as string,
    key: row.message_key as string,
    correlationId: row.correlation_id as string,
    // Nobody knows it of what was enqueued before there was such a column.
    scope: (row.scope as string | null) ?? "",
    traceparent: row.traceparent as string | null,
    attempts: row.attempts as number,
    createdAt: row.created_at as number,
  };
}
