-- Phases, requests that wait for a worker, reconciliation, the audit trail, and the outbox.
--
-- The columns are added, and the table is not rebuilt: dropping it would run ON DELETE actions of tables that refer to
-- it, and copying it would take minutes where it is large. They come after the response's body. What of them is there
-- beside a body is read only together with it, and a NULL or a zero is told by a row's head, so nothing that wants to
-- be fast walks through a body for them. Each CHECK says what its column means in which state.

ALTER TABLE latchkey_records ADD COLUMN route TEXT;

-- The phases that are written down (encodeProgress).
ALTER TABLE latchkey_records ADD COLUMN progress TEXT
  CHECK (progress IS NULL OR state <> 'expired');

-- The request as a worker needs it (encodeRequest), until the outcome is known. Its body has a table of its own.
ALTER TABLE latchkey_records ADD COLUMN request_head TEXT
  CHECK (request_head IS NULL OR state NOT IN ('completed', 'expired'));

ALTER TABLE latchkey_records ADD COLUMN resume_after INTEGER
  CHECK (CASE state
           WHEN 'pending' THEN resume_after IS NOT NULL
           WHEN 'failed_retryable' THEN 1
           ELSE resume_after IS NULL
         END);

-- How often workers were handed the record since it is in this state.
ALTER TABLE latchkey_records ADD COLUMN claims INTEGER NOT NULL DEFAULT 0
  CHECK (claims = 0 OR state IN ('pending', 'failed_retryable', 'unknown'));

-- How long after a crash reconciliation may first ask.
ALTER TABLE latchkey_records ADD COLUMN reconcile_ms INTEGER NOT NULL DEFAULT 30000;

-- Since when an operator has to find out, because asking has not helped.
ALTER TABLE latchkey_records ADD COLUMN escalated_at INTEGER
  CHECK (escalated_at IS NULL OR state = 'unknown');

-- SQLite writes a whole row whenever a part of it changes: within the record, a large body would be written again at
-- every heartbeat and with every phase.
CREATE TABLE latchkey_request_bodies (
  scope TEXT NOT NULL COLLATE BINARY,
  key   TEXT NOT NULL COLLATE BINARY,
  -- Some drivers bind an empty body as NULL; it means the same.
  body  BLOB,
  PRIMARY KEY (scope, key)
);

-- A body goes when its head goes, whichever statement takes that away.
CREATE TRIGGER latchkey_request_erased AFTER UPDATE OF request_head ON latchkey_records
  WHEN OLD.request_head IS NOT NULL AND NEW.request_head IS NULL
BEGIN
  DELETE FROM latchkey_request_bodies WHERE scope = OLD.scope AND key = OLD.key;
END;

CREATE TRIGGER latchkey_request_deleted AFTER DELETE ON latchkey_records
  WHEN OLD.request_head IS NOT NULL
BEGIN
  DELETE FROM latchkey_request_bodies WHERE scope = OLD.scope AND key = OLD.key;
END;

-- For workers: what they may execute or finish.
CREATE INDEX latchkey_records_resume ON latchkey_records (resume_after)
  WHERE resume_after IS NOT NULL;

-- For the sweeper: accepted requests that nobody executed, and what is half done and nobody went on with, in time.
CREATE INDEX latchkey_records_unclaimed ON latchkey_records (expires_at)
  WHERE state = 'pending' OR (state = 'failed_retryable' AND progress IS NOT NULL AND resume_after IS NULL);

-- What waits to be finished does not expire, and must not be in the reaper's way.
DROP INDEX latchkey_records_expiry;
CREATE INDEX latchkey_records_expiry ON latchkey_records (expires_at)
  WHERE state IN ('completed', 'failed_retryable') AND resume_after IS NULL;

-- What waits for an operator is not asked about.
DROP INDEX latchkey_records_reconcile;
CREATE INDEX latchkey_records_reconcile ON latchkey_records (reconcile_after)
  WHERE state = 'unknown' AND escalated_at IS NULL;

-- What happened off the happy path. AUTOINCREMENT, here and below: an id is never given twice.
CREATE TABLE latchkey_audit (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  at         INTEGER NOT NULL,
  scope      TEXT    NOT NULL COLLATE BINARY,
  key        TEXT    NOT NULL COLLATE BINARY,
  fence      INTEGER NOT NULL,
  from_state TEXT    NOT NULL,
  to_state   TEXT    NOT NULL,
  actor      TEXT    NOT NULL,
  reason     TEXT    NOT NULL
);

CREATE INDEX latchkey_audit_record ON latchkey_audit (scope, key, id);

-- Messages that committed with a business write. One waits as long as it is neither delivered nor dead.
CREATE TABLE latchkey_outbox (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  -- All messages of one partition are in one lane, and one relay at a time has a lane.
  lane           INTEGER NOT NULL,
  topic          TEXT    NOT NULL,
  partition_key  TEXT    COLLATE BINARY,
  -- 1 where no earlier message of the partition waits. Only heads are looked for; the others come after their head,
  -- so that a partition that cannot go on is one row to pass by, however much waits in it.
  is_head        INTEGER NOT NULL CHECK (is_head IN (0, 1)),
  message_key    TEXT    NOT NULL,
  correlation_id TEXT    NOT NULL,
  attempts       INTEGER NOT NULL DEFAULT 0,
  due_at         INTEGER NOT NULL,
  created_at     INTEGER NOT NULL,
  -- Set only where the provider gave a reference to remember; else a delivered message is deleted.
  delivered_at   INTEGER,
  reference      TEXT,
  died_at        INTEGER,
  error          TEXT,
  payload        TEXT    NOT NULL,

  CHECK ((delivered_at IS NULL) = (reference IS NULL)),
  CHECK (delivered_at IS NULL OR died_at IS NULL),
  CHECK (died_at IS NULL OR error IS NOT NULL)
);

-- For the relay: what may be delivered. Also what `counts` reads, instead of the messages.
CREATE INDEX latchkey_outbox_due ON latchkey_outbox (is_head, lane, due_at)
  WHERE delivered_at IS NULL AND died_at IS NULL;

-- The order of each partition.
CREATE INDEX latchkey_outbox_partition ON latchkey_outbox (partition_key, id)
  WHERE partition_key IS NOT NULL AND delivered_at IS NULL AND died_at IS NULL;

CREATE INDEX latchkey_outbox_delivered ON latchkey_outbox (delivered_at)
  WHERE delivered_at IS NOT NULL;

CREATE INDEX latchkey_outbox_dead ON latchkey_outbox (id)
  WHERE died_at IS NOT NULL;

-- Which relay may deliver what. Lane numbers come from a hash of the partition.
CREATE TABLE latchkey_lanes (
  lane          INTEGER PRIMARY KEY,
  owner         TEXT,
  claimed_until INTEGER,
  CHECK ((owner IS NULL) = (claimed_until IS NULL))
);

INSERT INTO latchkey_lanes (lane)
WITH RECURSIVE lanes (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM lanes WHERE lane < 63)
SELECT lane FROM lanes;
