-- One row per (scope, key). Times are the server's, in whole milliseconds: what is compared in a statement must be
-- what the statement hands out.

CREATE TABLE latchkey_records (
  -- Keys are compared byte for byte; COLLATE "C" also keeps a library upgrade from invalidating the index.
  scope           text COLLATE "C" NOT NULL,
  key             text COLLATE "C" NOT NULL,
  state           text NOT NULL CHECK (state IN (
                    'pending', 'in_progress', 'completed', 'failed_retryable', 'unknown', 'expired')),
  fingerprint     text NOT NULL,
  fence           integer NOT NULL,
  on_crash        text NOT NULL CHECK (on_crash IN ('reconcile', 'resume', 'retry')),
  created_at      timestamptz(3) NOT NULL,
  expires_at      timestamptz(3) NOT NULL,
  -- Who holds or held the latest lease. It stays after the owner settled, so that the same settlement can be told
  -- twice; it is NULL after somebody else moved the record on: the owner's word counts no more.
  owner           text,
  -- The session whose advisory lock says that the owner lives; NULL where only the lease says so.
  owner_session   integer,
  lease_until     timestamptz(3),
  -- Whether anybody waits for this record. A NOTIFY on every settlement was measured to cost more than half of the
  -- throughput, so only these are told.
  watched         boolean NOT NULL DEFAULT false,
  reconcile_after timestamptz(3),
  reason          text,
  completed_at    timestamptz(3),
  response_status smallint,
  response_head   text,
  response_body   bytea,

  PRIMARY KEY (scope, key),

  -- What belongs to one state is there in that state and in no other.
  CHECK (state <> 'in_progress' OR owner IS NOT NULL),
  CHECK (state = 'in_progress' OR owner_session IS NULL),
  CHECK ((state = 'in_progress') = (lease_until IS NOT NULL)),
  CHECK ((state = 'unknown') = (reconcile_after IS NOT NULL)),
  CHECK ((state IN ('unknown', 'failed_retryable')) = (reason IS NOT NULL)),
  CHECK ((state = 'completed') = (completed_at IS NOT NULL)),
  CHECK ((state = 'completed') = (response_status IS NOT NULL)),
  CHECK ((state = 'completed') = (response_head IS NOT NULL)),
  CHECK (state = 'completed' OR response_body IS NULL)
) WITH (
  -- A row is written twice within moments, when it is reserved and, longer, when it is settled. With this much room
  -- 99 % of the second versions were measured to stay on the page of the first, against 76 % without. They are not
  -- "heap-only" updates, at any fillfactor: the state is part of the indexes below.
  fillfactor = 80
);

-- lz4 stores a 16 kB body 2.2 times as fast as the default. Some builds of Postgres come without it.
DO $$
BEGIN
  ALTER TABLE latchkey_records ALTER COLUMN response_body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
  NULL;
END
$$;

-- For the sweeper: executions by the end of their lease.
CREATE INDEX latchkey_records_lease ON latchkey_records (lease_until)
  WHERE state = 'in_progress';

-- For the reaper: settled records by the end of their retention.
CREATE INDEX latchkey_records_expiry ON latchkey_records (expires_at)
  WHERE state IN ('completed', 'failed_retryable');

-- What was kept for audit has an index of its own, or the reaper would wade through all of it to reach its work.
CREATE INDEX latchkey_records_expired ON latchkey_records (expires_at)
  WHERE state = 'expired';

-- For the reconciler: unknown outcomes by when they may be asked about.
CREATE INDEX latchkey_records_reconcile ON latchkey_records (reconcile_after)
  WHERE state = 'unknown';

-- Numbers the sessions of lock: "advisory". A number is never used twice, or a dead owner would seem to live again;
-- two thousand million sessions last for 68 years at one per second.
CREATE SEQUENCE latchkey_sessions AS integer;
