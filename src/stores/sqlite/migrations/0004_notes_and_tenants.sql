-- Notes that all processes share, what finds all that is kept of one tenant, and what counts unknown outcomes.

-- Values are bytes (UTF-8): some drivers cut a text off at its first U+0000.
CREATE TABLE latchkey_notes (
  name      TEXT    NOT NULL COLLATE BINARY PRIMARY KEY,
  version   TEXT    NOT NULL COLLATE BINARY,
  -- When it counts as forgotten, whether it is still here or not; NULL: never.
  forget_at INTEGER,
  -- Some drivers bind an empty value as NULL; it means the same.
  value     BLOB
);

CREATE INDEX latchkey_notes_forget ON latchkey_notes (forget_at)
  WHERE forget_at IS NOT NULL;

-- The scope of the request that caused a message; of what was enqueued before, nobody knows it. The trace context is
-- there where the phase had one.
ALTER TABLE latchkey_outbox ADD COLUMN scope TEXT NOT NULL DEFAULT '' COLLATE BINARY;
ALTER TABLE latchkey_outbox ADD COLUMN traceparent TEXT;

-- Only what nobody has to deliver any more: every message that is enqueued and delivered would pay a quarter more.
CREATE INDEX latchkey_outbox_done ON latchkey_outbox (scope)
  WHERE delivered_at IS NOT NULL OR died_at IS NOT NULL;

-- For the reconciler, as before: unknown outcomes by when they may be asked about, without those that wait for an
-- operator. Those are in it as well now, behind the others, so that all of them are counted without reading a record.
DROP INDEX latchkey_records_reconcile;
CREATE INDEX latchkey_records_reconcile ON latchkey_records (escalated_at, reconcile_after, created_at)
  WHERE state = 'unknown';
