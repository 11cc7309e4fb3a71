-- The same records under a rule that costs less to keep. SQLite makes a table of its own for a list of three names, in memory and
-- anew for every record that is written, so that "on_crash IN (...)" took as long as an index. Compared name by name it costs nothing
-- that can be measured. A CHECK cannot be replaced in place, so the table is copied, once: about ten seconds for a million
-- records. Whoever else wants to write waits for it, two seconds at most, and is then told that the file is locked. Processes
-- of the version before go on working afterwards.
--
-- Whoever runs this has foreign keys switched off, so that dropping the old table deletes nothing that refers to it,
-- and renames the way that leaves other people's views alone.

CREATE TABLE latchkey_records_new (
  scope           TEXT    NOT NULL COLLATE BINARY,
  key             TEXT    NOT NULL COLLATE BINARY,
  state           TEXT    NOT NULL,
  fingerprint     TEXT    NOT NULL,
  fence           INTEGER NOT NULL,
  on_crash        TEXT    NOT NULL CHECK (on_crash = 'reconcile' OR on_crash = 'resume' OR on_crash = 'retry'),
  created_at      INTEGER NOT NULL,
  expires_at      INTEGER NOT NULL,
  -- Who holds or held the latest lease. NULL after somebody else moved the record on: its word counts no more.
  owner           TEXT,
  lease_until     INTEGER,
  route           TEXT,
  -- How long after a crash reconciliation may first ask.
  reconcile_ms    INTEGER NOT NULL DEFAULT 30000,
  reconcile_after INTEGER,
  -- Since when an operator has to find out, because asking has not helped.
  escalated_at    INTEGER,
  resume_after    INTEGER,
  -- How often workers were handed the record since it is in this state.
  claims          INTEGER NOT NULL DEFAULT 0,
  reason          TEXT,
  completed_at    INTEGER,
  response_status INTEGER,
  -- The request as a worker needs it (encodeRequest), until the outcome is known. Its body has a table of its own.
  request_head    TEXT,
  -- The phases that are written down (encodeProgress).
  progress        TEXT,
  response_head   TEXT,
  -- The last column, so that reading the others never walks through the pages of a large body.
  response_body   BLOB,

  PRIMARY KEY (scope, key),

  -- What belongs to one state is there in that state and in no other. The happy path comes first.
  CHECK (CASE state
    WHEN 'in_progress' THEN
      owner IS NOT NULL AND lease_until IS NOT NULL AND claims = 0
      AND coalesce(reconcile_after, escalated_at, resume_after, reason) IS NULL
      AND coalesce(completed_at, response_status, response_head, response_body) IS NULL
    WHEN 'completed' THEN
      completed_at IS NOT NULL AND response_status IS NOT NULL AND response_head IS NOT NULL AND claims = 0
      AND coalesce(lease_until, reconcile_after, escalated_at, resume_after, reason, request_head) IS NULL
    WHEN 'pending' THEN
      resume_after IS NOT NULL
      AND coalesce(lease_until, reconcile_after, escalated_at, reason) IS NULL
      AND coalesce(completed_at, response_status, response_head, response_body) IS NULL
    WHEN 'failed_retryable' THEN
      reason IS NOT NULL
      AND coalesce(lease_until, reconcile_after, escalated_at) IS NULL
      AND coalesce(completed_at, response_status, response_head, response_body) IS NULL
    WHEN 'unknown' THEN
      reason IS NOT NULL AND reconcile_after IS NOT NULL
      AND coalesce(lease_until, resume_after) IS NULL
      AND coalesce(completed_at, response_status, response_head, response_body) IS NULL
    WHEN 'expired' THEN
      claims = 0
      AND coalesce(lease_until, reconcile_after, escalated_at, resume_after, reason, request_head, progress) IS NULL
      AND coalesce(completed_at, response_status, response_head, response_body) IS NULL
    ELSE 0
  END)
);

INSERT INTO latchkey_records_new (
         scope, key, state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until, route,
         reconcile_ms, reconcile_after, escalated_at, resume_after, claims, reason, completed_at, response_status,
         request_head, progress, response_head, response_body)
SELECT scope, key, state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until, route,
       reconcile_ms, reconcile_after, escalated_at, resume_after, claims, reason, completed_at, response_status,
       request_head, progress, response_head, response_body
  FROM latchkey_records;

DROP TABLE latchkey_records;
ALTER TABLE latchkey_records_new RENAME TO latchkey_records;

-- All that went with the old table, unchanged.

-- For the sweeper: executions by the end of their lease.
CREATE INDEX latchkey_records_lease ON latchkey_records (lease_until)
  WHERE lease_until IS NOT NULL;

-- For the reaper: settled records by the end of their retention. What waits to be finished does not expire, and must
-- not be in its way.
CREATE INDEX latchkey_records_expiry ON latchkey_records (expires_at)
  WHERE state IN ('completed', 'failed_retryable') AND resume_after IS NULL;

-- What was kept for audit has an index of its own, or the reaper would wade through all of it to reach its work.
CREATE INDEX latchkey_records_expired ON latchkey_records (expires_at)
  WHERE state = 'expired';

-- For the reconciler, and for counting: unknown outcomes, behind them those that wait for an operator.
CREATE INDEX latchkey_records_reconcile ON latchkey_records (escalated_at, reconcile_after, created_at)
  WHERE reconcile_after IS NOT NULL;

-- For workers: what they may execute or finish.
CREATE INDEX latchkey_records_resume ON latchkey_records (resume_after)
  WHERE resume_after IS NOT NULL;

-- For the sweeper: accepted requests that nobody executed, and what is half done and nobody went on with, in time.
CREATE INDEX latchkey_records_unclaimed ON latchkey_records (expires_at)
  WHERE coalesce(resume_after, reason) IS NOT NULL
    AND (state = 'pending' OR (state = 'failed_retryable' AND progress IS NOT NULL AND resume_after IS NULL));

-- For looking through records: the latest first, and from any place on.
CREATE INDEX latchkey_records_created ON latchkey_records (created_at, scope, key);

-- The same in one of the rarer states.
CREATE INDEX latchkey_records_unusual ON latchkey_records (state, created_at, scope, key)
  WHERE state <> 'in_progress' AND state <> 'completed';

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
