-- Small facts that all processes share, such as the counters of a limit.
CREATE TABLE IF NOT EXISTS latchkey_dist_notes (
  name       text PRIMARY KEY,
  -- A JSON string: text cannot hold U+0000, and a note may.
  value      text NOT NULL,
  -- Another one after every write. Whoever has read it may write, unless somebody else was faster.
  version    text NOT NULL,
  -- NULL: for ever.
  expires_at double precision
);

-- For the reaper.
CREATE INDEX IF NOT EXISTS latchkey_dist_notes_expiry ON latchkey_dist_notes (expires_at);
