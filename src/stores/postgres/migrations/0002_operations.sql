-- Operations: how far each has come, the request for whoever finishes it, the outbox, and the audit trail.
--
-- The checks and indexes are made under the lock of ALTER TABLE, which ends within a second on a million records. On a
-- table of many millions, migrate at a quiet hour.

ALTER TABLE latchkey_records
  ADD COLUMN route              text,
  ADD COLUMN progress           text,
  -- The request, for a worker on any machine; gone as soon as nobody can need it any more.
  ADD COLUMN request_head       text,
  ADD COLUMN request_body       bytea,
  -- When a worker may execute or finish it. While this is set the record does not expire.
  ADD COLUMN resume_after       timestamptz(3),
  -- How often workers were handed the record since it is in this state.
  ADD COLUMN claims             integer NOT NULL DEFAULT 0,
  -- How long after a crash reconciliation may first ask.
  ADD COLUMN reconcile_ms       double precision NOT NULL DEFAULT 30000,
  ADD COLUMN escalated_at       timestamptz(3),
  ADD CHECK (state <> 'pending' OR resume_after IS NOT NULL),
  ADD CHECK (state IN ('pending', 'failed_retryable') OR resume_after IS NULL),
  ADD CHECK (state = 'unknown' OR escalated_at IS NULL),
  ADD CHECK (state NOT IN ('completed', 'expired') OR request_head IS NULL),
  ADD CHECK ((request_head IS NULL) = (request_body IS NULL));

DO $$
BEGIN
  ALTER TABLE latchkey_records ALTER COLUMN request_body SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
  NULL;
END
$$;

-- For workers: what may be executed or finished, by when.
CREATE INDEX latchkey_records_resume ON latchkey_records (resume_after)
  WHERE resume_after IS NOT NULL;

-- For the sweeper: accepted requests that nobody executes, and what is half done and nobody goes on with, by when they
-- have waited for too long.
CREATE INDEX latchkey_records_unclaimed ON latchkey_records (expires_at)
  WHERE state = 'pending' OR (state = 'failed_retryable' AND progress IS NOT NULL AND resume_after IS NULL);

-- What waits for an operator is not asked about any more.
DROP INDEX latchkey_records_reconcile;
CREATE INDEX latchkey_records_reconcile ON latchkey_records (reconcile_after)
  WHERE state = 'unknown' AND escalated_at IS NULL;

-- For operators: what reconciliation could not find out.
CREATE INDEX latchkey_records_escalated ON latchkey_records (escalated_at)
  WHERE escalated_at IS NOT NULL;

-- What waits to be finished may be half done, and never expires.
DROP INDEX latchkey_records_expiry;
CREATE INDEX latchkey_records_expiry ON latchkey_records (expires_at)
  WHERE state IN ('completed', 'failed_retryable') AND resume_after IS NULL;

-- Every change of a record that was not the happy path. It outlives the record.
CREATE TABLE latchkey_audit (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         timestamptz(3) NOT NULL,
  scope      text COLLATE "C" NOT NULL,
  key        text COLLATE "C" NOT NULL,
  fence      integer NOT NULL,
  from_state text NOT NULL,
  to_state   text NOT NULL,
  actor      text NOT NULL,
  reason     text NOT NULL
);

CREATE INDEX latchkey_audit_record ON latchkey_audit (scope, key, id);

-- Messages that committed with a business write. What was delivered is deleted, unless it has a reference to keep.
CREATE TABLE latchkey_outbox (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  lane           integer NOT NULL,
  topic          text NOT NULL,
  partition_key  text COLLATE "C",
  payload        text NOT NULL,
  message_key    text NOT NULL,
  correlation_id text NOT NULL,
  attempts       integer NOT NULL DEFAULT 0,
  due_at         timestamptz(3) NOT NULL,
  created_at     timestamptz(3) NOT NULL,
  delivered_at   timestamptz(3),
  reference      text,
  died_at        timestamptz(3),
  error          text,
  CHECK (delivered_at IS NULL OR died_at IS NULL),
  CHECK (died_at IS NULL OR error IS NOT NULL)
) WITH (
  -- A queue: with the default of 20 % of all rows, a burst would be followed by an hour of slow claims.
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 2000
);

-- For relays: what waits in a lane.
CREATE INDEX latchkey_outbox_partition ON latchkey_outbox (lane, partition_key, id)
  WHERE delivered_at IS NULL AND died_at IS NULL AND partition_key IS NOT NULL;
CREATE INDEX latchkey_outbox_due ON latchkey_outbox (lane, due_at)
  WHERE delivered_at IS NULL AND died_at IS NULL AND partition_key IS NULL;

-- Partitions whose first message is due. They are found by skipping from one to the next, so that a long queue behind a
-- message that is not due costs nothing. The settings keep the plan on the index even while the table is empty: a
-- plan that was made then is kept when it has grown.
CREATE FUNCTION latchkey_ready_partitions(in_lane integer, most integer)
RETURNS TABLE (name text, due timestamptz)
LANGUAGE plpgsql STABLE ROWS 10
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
BEGIN
  SELECT m.partition_key, m.due_at INTO name, due FROM latchkey_outbox AS m
  WHERE m.lane = in_lane AND m.partition_key IS NOT NULL AND m.delivered_at IS NULL AND m.died_at IS NULL
  ORDER BY m.partition_key, m.id LIMIT 1;
  WHILE name IS NOT NULL AND most > 0 LOOP
    IF due <= now() THEN
      RETURN NEXT;
      most := most - 1;
    END IF;
    SELECT m.partition_key, m.due_at INTO name, due FROM latchkey_outbox AS m
    WHERE m.lane = in_lane AND m.partition_key > name AND m.delivered_at IS NULL AND m.died_at IS NULL
    ORDER BY m.partition_key, m.id LIMIT 1;
  END LOOP;
END
$$;

CREATE INDEX latchkey_outbox_dead ON latchkey_outbox (id) WHERE died_at IS NOT NULL;
CREATE INDEX latchkey_outbox_delivered ON latchkey_outbox (delivered_at) WHERE delivered_at IS NOT NULL;

-- Every partition belongs to one lane, and a lane to one relay at a time. Rows are rewritten all the time and stay
-- few: with room on the page the new version takes the place of the old.
CREATE TABLE latchkey_lanes (
  lane          integer PRIMARY KEY,
  owner         text,
  claimed_until timestamptz(3)
) WITH (fillfactor = 20);

INSERT INTO latchkey_lanes (lane) SELECT generate_series(0, 63);

-- Whether any relay sleeps and wants to be woken: a NOTIFY for each message would cost more than the message.
CREATE TABLE latchkey_relays (
  id     integer PRIMARY KEY CHECK (id = 1),
  asleep boolean NOT NULL
) WITH (fillfactor = 20);

INSERT INTO latchkey_relays (id, asleep) VALUES (1, false);
