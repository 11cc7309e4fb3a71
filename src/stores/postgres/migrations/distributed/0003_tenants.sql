-- Whose message it is, so that what is kept of a tenant can be found, and the trace that it belongs to. NULL in messages from
-- before: nobody wrote down whose they were.
ALTER TABLE latchkey_dist_outbox ADD COLUMN IF NOT EXISTS scope text;
ALTER TABLE latchkey_dist_outbox ADD COLUMN IF NOT EXISTS traceparent text;

-- For forgetting a tenant.
CREATE INDEX IF NOT EXISTS latchkey_dist_outbox_scope ON latchkey_dist_outbox (scope);
