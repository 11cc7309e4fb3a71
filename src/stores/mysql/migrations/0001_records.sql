-- Records, the audit trail and the outbox, and what the store calls while requests are served.
--
-- All text is kept as bytes (UTF-8), because every collation takes some texts for the same that are not: a trailing
-- space, a capital letter or an accent would be enough. No character set of a connection is in between either.
-- All times are milliseconds since 1970, from UTC_TIMESTAMP, which no time zone and no summer time changes.
--
-- Nothing here can be rolled back, so each statement can be carried out again after an interruption.

CREATE TABLE IF NOT EXISTS latchkey_records (
  -- SHA-256 of the key's length, the key and the scope: an index holds at most 3072 bytes, a scope may have more.
  id              BINARY(32)      NOT NULL,
  scope           MEDIUMBLOB      NOT NULL,
  record_key      MEDIUMBLOB      NOT NULL,
  state           VARBINARY(16)   NOT NULL,
  fingerprint     VARBINARY(1024) NOT NULL,
  fence           BIGINT          NOT NULL,
  on_crash        VARBINARY(9)    NOT NULL,
  created_at      BIGINT          NOT NULL,
  expires_at      BIGINT          NOT NULL,
  -- Who holds or held the latest lease. NULL after somebody else moved the record on: its word counts no more.
  owner           VARBINARY(1024),
  lease_until     BIGINT,
  -- How long after a crash reconciliation may first ask.
  reconcile_ms    BIGINT          NOT NULL,
  reconcile_after BIGINT,
  -- Since when an operator has to find out, because asking has not helped.
  escalated_at    BIGINT,
  resume_after    BIGINT,
  -- How often workers were handed the record since it is in this state.
  claims          BIGINT          NOT NULL DEFAULT 0,
  completed_at    BIGINT,
  response_status BIGINT,
  -- Which worker comes for the record, and when; NULL where none does. There are no partial indexes here.
  job             VARBINARY(9),
  due_at          BIGINT,
  route           MEDIUMBLOB,
  reason          MEDIUMBLOB,
  -- The phases that are written down (encodeProgress).
  progress        LONGBLOB,
  response_head   MEDIUMBLOB,
  response_body   LONGBLOB,
  -- The request as a worker needs it (encodeRequest), until the outcome is known.
  request_head    MEDIUMBLOB,
  request_body    LONGBLOB,

  PRIMARY KEY (id),
  KEY latchkey_records_job (job, due_at),
  -- For workers that execute or finish what was accepted.
  KEY latchkey_records_resume (resume_after),

  -- What belongs to one state is there in that state and in no other. The happy path comes first.
  CONSTRAINT latchkey_records_state CHECK ((CASE state
    WHEN 'in_progress' THEN
      owner IS NOT NULL AND lease_until IS NOT NULL AND claims = 0
      AND reconcile_after IS NULL AND escalated_at IS NULL AND resume_after IS NULL AND reason IS NULL
      AND completed_at IS NULL AND response_status IS NULL AND response_head IS NULL AND response_body IS NULL
    WHEN 'completed' THEN
      completed_at IS NOT NULL AND response_status IS NOT NULL AND response_head IS NOT NULL AND claims = 0
      AND lease_until IS NULL AND reconcile_after IS NULL AND escalated_at IS NULL AND resume_after IS NULL
      AND reason IS NULL AND request_head IS NULL AND request_body IS NULL
    WHEN 'pending' THEN
      resume_after IS NOT NULL
      AND lease_until IS NULL AND reconcile_after IS NULL AND escalated_at IS NULL AND reason IS NULL
      AND completed_at IS NULL AND response_status IS NULL AND response_head IS NULL AND response_body IS NULL
    WHEN 'failed_retryable' THEN
      reason IS NOT NULL
      AND lease_until IS NULL AND reconcile_after IS NULL AND escalated_at IS NULL
      AND completed_at IS NULL AND response_status IS NULL AND response_head IS NULL AND response_body IS NULL
    WHEN 'unknown' THEN
      reason IS NOT NULL AND reconcile_after IS NOT NULL
      AND lease_until IS NULL AND resume_after IS NULL
      AND completed_at IS NULL AND response_status IS NULL AND response_head IS NULL AND response_body IS NULL
    WHEN 'expired' THEN
      claims = 0
      AND lease_until IS NULL AND reconcile_after IS NULL AND escalated_at IS NULL AND resume_after IS NULL
      AND reason IS NULL AND progress IS NULL AND request_head IS NULL AND request_body IS NULL
      AND completed_at IS NULL AND response_status IS NULL AND response_head IS NULL AND response_body IS NULL
    ELSE FALSE
  END) = TRUE)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- What happened off the happy path.
CREATE TABLE IF NOT EXISTS latchkey_audit (
  id         BIGINT        NOT NULL AUTO_INCREMENT,
  at         BIGINT        NOT NULL,
  record_id  BINARY(32)    NOT NULL,
  -- SHA-256, by which one tenant's entries are found.
  scope_id   BINARY(32)    NOT NULL,
  scope      MEDIUMBLOB    NOT NULL,
  record_key MEDIUMBLOB    NOT NULL,
  fence      BIGINT        NOT NULL,
  from_state VARBINARY(16) NOT NULL,
  to_state   VARBINARY(16) NOT NULL,
  actor      MEDIUMBLOB    NOT NULL,
  reason     MEDIUMBLOB    NOT NULL,
  PRIMARY KEY (id),
  KEY latchkey_audit_record (record_id, id),
  KEY latchkey_audit_scope (scope_id, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Messages that committed with a business write. One waits as long as it is neither delivered nor dead.
CREATE TABLE IF NOT EXISTS latchkey_outbox (
  id             BIGINT     NOT NULL AUTO_INCREMENT,
  -- All messages of one partition are in one lane, and one relay at a time has a lane.
  lane           INT        NOT NULL,
  -- The lane while the message waits, else NULL, so that the relay never meets what is done.
  waiting_lane   INT,
  topic          MEDIUMBLOB NOT NULL,
  -- SHA-256 of the partition; NULL where a message is in none, and waits for no other.
  partition_id   BINARY(32),
  partition_key  MEDIUMBLOB,
  message_key    MEDIUMBLOB NOT NULL,
  correlation_id MEDIUMBLOB NOT NULL,
  attempts       BIGINT     NOT NULL DEFAULT 0,
  due_at         BIGINT     NOT NULL,
  created_at     BIGINT     NOT NULL,
  -- Set only where the provider gave a reference to remember; else a delivered message is deleted.
  delivered_at   BIGINT,
  reference      MEDIUMBLOB,
  died_at        BIGINT,
  error          MEDIUMBLOB,
  payload        LONGBLOB   NOT NULL,
  PRIMARY KEY (id),
  -- The order of each partition, and which partitions there are.
  KEY latchkey_outbox_order (waiting_lane, partition_id, id),
  -- What is due, for messages without a partition and for the counts.
  KEY latchkey_outbox_due (waiting_lane, partition_id, due_at),
  KEY latchkey_outbox_delivered (delivered_at),
  KEY latchkey_outbox_dead (died_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Which relay may deliver what. Lane numbers come from a hash of the partition.
CREATE TABLE IF NOT EXISTS latchkey_lanes (
  lane          INT NOT NULL,
  owner         VARBINARY(1024),
  claimed_until BIGINT,
  PRIMARY KEY (lane)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

INSERT IGNORE INTO latchkey_lanes (lane) VALUES
  (0), (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15),
  (16), (17), (18), (19), (20), (21), (22), (23), (24), (25), (26), (27), (28), (29), (30), (31),
  (32), (33), (34), (35), (36), (37), (38), (39), (40), (41), (42), (43), (44), (45), (46), (47),
  (48), (49), (50), (51), (52), (53), (54), (55), (56), (57), (58), (59), (60), (61), (62), (63);

-- What most requests need is one round trip each. MySQL cannot answer with the row that a statement has met, so these
-- are procedures. Each begins its own transaction, whatever a connection was left in, and ends it; in between nobody
-- waits for the network. Which request may do what is decided in the library: these only insert what is new, and
-- change what a lease holds.

DELIMITER //

-- Begins a transaction that sees nothing which others have not committed, and all of it at one moment, whatever the
-- session's isolation level is; that is left as it was. The level can only be chosen while no transaction is open.
DROP PROCEDURE IF EXISTS latchkey_begin_read //
CREATE PROCEDURE latchkey_begin_read ()
SQL SECURITY INVOKER
BEGIN
  COMMIT AND NO CHAIN;
  SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
  START TRANSACTION;
END //

-- Inserts the record if there is none and p_state is given; else answers with the record as it is.
DROP PROCEDURE IF EXISTS latchkey_reserve //
CREATE PROCEDURE latchkey_reserve (
  IN p_id LONGBLOB, IN p_scope LONGBLOB, IN p_key LONGBLOB, IN p_state LONGBLOB, IN p_fingerprint LONGBLOB,
  IN p_fence BIGINT, IN p_on_crash LONGBLOB, IN p_owner LONGBLOB, IN p_lease_ms BIGINT, IN p_retention_ms BIGINT,
  IN p_reconcile_ms BIGINT, IN p_route LONGBLOB, IN p_request_head LONGBLOB, IN p_request_body LONGBLOB)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_now BIGINT;
  DECLARE v_lease_until BIGINT;
  DECLARE v_expires_at BIGINT;
  DECLARE v_is_there BOOLEAN DEFAULT FALSE;
  DECLARE CONTINUE HANDLER FOR 1062 SET v_is_there = TRUE;

  START TRANSACTION;
  SELECT TRUE INTO v_is_there FROM latchkey_records WHERE id = p_id;
  COMMIT;
  IF p_state IS NOT NULL AND NOT v_is_there THEN
    START TRANSACTION;
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000;
    SET v_lease_until = LEAST(v_now + p_lease_ms, 8640000000000000);
    SET v_expires_at = LEAST(v_now + p_retention_ms, 8640000000000000);
    INSERT INTO latchkey_records (
      id, scope, record_key, state, fingerprint, fence, on_crash, created_at, expires_at,
      owner, lease_until, reconcile_ms, resume_after, job, due_at, route, request_head, request_body)
    VALUES (
      p_id, p_scope, p_key, p_state, p_fingerprint, p_fence, p_on_crash, v_now, v_expires_at,
      p_owner, v_lease_until, p_reconcile_ms,
      IF(v_lease_until IS NULL, v_now, NULL),
      IF(v_lease_until IS NULL, 'unclaimed', 'lease'),
      COALESCE(v_lease_until, v_expires_at),
      p_route, p_request_head, p_request_body);
    COMMIT;
  END IF;

  IF p_state IS NOT NULL AND NOT v_is_there THEN
    SELECT TRUE AS inserted, v_now AS clock;
  ELSE
    CALL latchkey_begin_read();
    SELECT FALSE AS inserted, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 AS clock,
           state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until, reconcile_after, reason,
           completed_at, response_status, response_head, response_body, route, progress, request_head, resume_after,
           claims, escalated_at, reconcile_ms
      FROM latchkey_records
     WHERE id = p_id AND scope = p_scope AND record_key = p_key;
    COMMIT;
  END IF;
END //

-- Completes what the lease holds. Answers with when the record expires; NULL: the lease is lost. The same completion
-- may be told twice: the answer to the first one may have been lost.
DROP PROCEDURE IF EXISTS latchkey_complete //
CREATE PROCEDURE latchkey_complete (
  IN p_id LONGBLOB, IN p_fence BIGINT, IN p_owner LONGBLOB, IN p_status BIGINT, IN p_head LONGBLOB,
  IN p_body LONGBLOB, IN p_retention_ms BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_now BIGINT;
  DECLARE v_expires_at BIGINT;

  START TRANSACTION;
  SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000;
  SET v_expires_at = LEAST(v_now + p_retention_ms, 8640000000000000);
  UPDATE latchkey_records
     SET state = 'completed', response_status = p_status, response_head = p_head, response_body = p_body,
         completed_at = v_now, expires_at = v_expires_at, lease_until = NULL, job = 'settled', due_at = v_expires_at,
         request_head = NULL, request_body = NULL
   WHERE id = p_id AND fence = p_fence AND owner = p_owner AND state = 'in_progress';
  IF ROW_COUNT() = 0 THEN
    SET v_expires_at = NULL;
    SELECT expires_at INTO v_expires_at
      FROM latchkey_records
     WHERE id = p_id AND fence = p_fence AND owner = p_owner AND state = 'completed';
  END IF;
  COMMIT;
  SELECT v_expires_at AS expires_at;
END //

-- Looks without touching.
DROP PROCEDURE IF EXISTS latchkey_read //
CREATE PROCEDURE latchkey_read (IN p_id LONGBLOB, IN p_scope LONGBLOB, IN p_key LONGBLOB)
SQL SECURITY INVOKER
BEGIN
  CALL latchkey_begin_read();
  SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 AS clock,
         state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until, reconcile_after, reason,
         completed_at, response_status, response_head, response_body, route, progress, request_head, resume_after,
         claims, escalated_at, reconcile_ms
    FROM (SELECT 1) AS always
         LEFT JOIN latchkey_records ON id = p_id AND scope = p_scope AND record_key = p_key;
  COMMIT;
END //

-- Begins a transaction and locks the record in it; leaves both to the caller. Waiting for the lock may take a while,
-- so the time is asked for afterwards.
DROP PROCEDURE IF EXISTS latchkey_lock //
CREATE PROCEDURE latchkey_lock (IN p_id LONGBLOB, IN p_scope LONGBLOB, IN p_key LONGBLOB)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_is_there BOOLEAN DEFAULT FALSE;

  START TRANSACTION;
  SELECT TRUE INTO v_is_there FROM latchkey_records WHERE id = p_id FOR UPDATE;
  SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 AS clock,
         state, fingerprint, fence, on_crash, created_at, expires_at, owner, lease_until, reconcile_after, reason,
         completed_at, response_status, response_head, response_body, route, progress, request_head, resume_after,
         claims, escalated_at, reconcile_ms
    FROM latchkey_records
   WHERE id = p_id AND scope = p_scope AND record_key = p_key
     FOR UPDATE;
END //

-- Begins the transaction of an atomic phase, with a mark in it that is gone as soon as anything ends it.
DROP PROCEDURE IF EXISTS latchkey_begin_phase //
CREATE PROCEDURE latchkey_begin_phase ()
SQL SECURITY INVOKER
BEGIN
  START TRANSACTION;
  SAVEPOINT latchkey_phase;
END //

-- The end of an atomic phase but for its messages and the COMMIT: fails without the mark, and answers with when the
-- record expires; NULL: the lease is lost, and all of it has to be rolled back. p_status is NULL where the phase does
-- not complete the record.
DROP PROCEDURE IF EXISTS latchkey_end_phase //
CREATE PROCEDURE latchkey_end_phase (
  IN p_id LONGBLOB, IN p_fence BIGINT, IN p_owner LONGBLOB, IN p_progress LONGBLOB, IN p_on_crash LONGBLOB,
  IN p_status BIGINT, IN p_head LONGBLOB, IN p_body LONGBLOB, IN p_retention_ms BIGINT)
SQL SECURITY INVOKER
BEGIN
  DECLARE v_now BIGINT;
  DECLARE v_expires_at BIGINT;

  RELEASE SAVEPOINT latchkey_phase;
  SELECT expires_at INTO v_expires_at
    FROM latchkey_records
   WHERE id = p_id AND fence = p_fence AND owner = p_owner AND state = 'in_progress'
     FOR UPDATE;
  IF v_expires_at IS NOT NULL AND p_status IS NULL THEN
    UPDATE latchkey_records
       SET progress = p_progress, on_crash = p_on_crash
     WHERE id = p_id;
  ELSEIF v_expires_at IS NOT NULL THEN
    SET v_now = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000;
    SET v_expires_at = LEAST(v_now + p_retention_ms, 8640000000000000);
    UPDATE latchkey_records
       SET progress = p_progress, on_crash = p_on_crash,
           state = 'completed', response_status = p_status, response_head = p_head, response_body = p_body,
           completed_at = v_now, expires_at = v_expires_at, lease_until = NULL, job = 'settled',
           due_at = v_expires_at, request_head = NULL, request_body = NULL
     WHERE id = p_id;
  END IF;
  SELECT v_expires_at AS expires_at;
END //

DELIMITER ;
