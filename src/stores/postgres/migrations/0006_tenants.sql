-- Whose message it is, so that what is kept of a tenant can be found, and the trace that it belongs to. NULL in messages from
-- before: nobody wrote down whose they were.
ALTER TABLE latchkey_outbox
  ADD COLUMN scope       text COLLATE "C",
  ADD COLUMN traceparent text;

-- For forgetting a tenant: messages that nobody has to deliver any more. Those on their way pay nothing for it.
CREATE INDEX latchkey_outbox_scope ON latchkey_outbox (scope)
  WHERE delivered_at IS NOT NULL OR died_at IS NOT NULL;
