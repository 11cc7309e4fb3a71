-- Group commit: what is concurrent in a process travels in one statement, and waits for the disk once.
--
-- Functions, because the plans within are made once per connection and need no statement with a name, which would not
-- survive a transaction pool. Each call of a batch is one position of its arrays. No record comes twice in a batch, and
-- all batches are sorted alike, so that no two of them wait for each other.
--
-- The plans must not depend on how many records there are: one that was made while the table was empty would else be
-- kept, and read all of a large one. So records are found in latchkey_find, where only the primary key is left to walk,
-- position by position; and they are written by their place, where nothing else is left to go by.

-- What belongs to one state is there in that state and in no other. One function in place of sixteen conditions: those
-- were read and compiled by every single statement, which took longer than the rest of it (measured: 55 of 76 µs).
CREATE FUNCTION latchkey_is_whole(
  state text, on_crash text, owner text, owner_session integer, lease_until timestamptz, reconcile_after timestamptz,
  reason text, completed_at timestamptz, response_status smallint, response_head text, has_response_body boolean,
  resume_after timestamptz, escalated_at timestamptz, request_head text, has_request_body boolean
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN state IN ('pending', 'in_progress', 'completed', 'failed_retryable', 'unknown', 'expired')
    AND on_crash IN ('reconcile', 'resume', 'retry')
    AND (state <> 'in_progress' OR owner IS NOT NULL)
    AND (state = 'in_progress' OR owner_session IS NULL)
    AND (state = 'in_progress') = (lease_until IS NOT NULL)
    AND (state = 'unknown') = (reconcile_after IS NOT NULL)
    AND (state IN ('unknown', 'failed_retryable')) = (reason IS NOT NULL)
    AND (state = 'completed') = (completed_at IS NOT NULL)
    AND (state = 'completed') = (response_status IS NOT NULL)
    AND (state = 'completed') = (response_head IS NOT NULL)
    AND (state = 'completed' OR NOT has_response_body)
    AND (state <> 'pending' OR resume_after IS NOT NULL)
    AND (state IN ('pending', 'failed_retryable') OR resume_after IS NULL)
    AND (state = 'unknown' OR escalated_at IS NULL)
    AND (state NOT IN ('completed', 'expired') OR request_head IS NULL)
    AND (request_head IS NOT NULL) = has_request_body;
END
$$;

DO $$
DECLARE
  condition name;
BEGIN
  FOR condition IN
    SELECT conname FROM pg_constraint WHERE conrelid = 'latchkey_records'::regclass AND contype = 'c'
  LOOP
    EXECUTE format('ALTER TABLE latchkey_records DROP CONSTRAINT %I', condition);
  END LOOP;
END
$$;

-- The conditions of before vouch for the records of before: looking at all of them again would hold up every request.
ALTER TABLE latchkey_records ADD CONSTRAINT latchkey_records_whole CHECK (latchkey_is_whole(
  state, on_crash, owner, owner_session, lease_until, reconcile_after, reason, completed_at, response_status,
  response_head, response_body IS NOT NULL, resume_after, escalated_at, request_head, request_body IS NOT NULL
)) NOT VALID;
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM latchkey_records) THEN
    ALTER TABLE latchkey_records VALIDATE CONSTRAINT latchkey_records_whole;
  END IF;
END
$$;

-- Wakes whoever waits for a record, and answers what is left to tell: nothing. What a record is called on the channel is a
-- hash, because its id may be longer than a payload.
CREATE FUNCTION latchkey_tell(scope text, key text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM pg_notify('latchkey',
    encode(sha256(convert_to(scope, 'UTF8') || '\x00'::bytea || convert_to(key, 'UTF8')), 'hex'));
  RETURN false;
END
$$;

-- Where the record of each position is; NULL where there is none.
CREATE FUNCTION latchkey_find(scopes text[], keys text[]) RETURNS tid[]
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN ARRAY(
    SELECT (SELECT r.ctid FROM latchkey_records AS r WHERE r.scope = c.scope AND r.key = c.key)
    FROM unnest(scopes, keys) AS c (scope, key));
END
$$;

-- The positions whose record was written by this transaction, as a list with commas.
CREATE FUNCTION latchkey_written(scopes text[], keys text[]) RETURNS text
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN coalesce(string_agg(c.position::text, ','), '')
  FROM unnest(scopes, keys) WITH ORDINALITY AS c (scope, key, position)
  WHERE (
    SELECT r.xmin = pg_current_xact_id_if_assigned()::xid FROM latchkey_records AS r
    WHERE r.scope = c.scope AND r.key = c.key);
END
$$;

-- A row for each position whose record this transaction has not written: with a fingerprint if there is a record, and
-- with a lease or a status if it can be answered at once, because it is in progress or completed, by the clock alone.
-- Large answers are left to statements of their own, so that nobody waits for all of them.
CREATE FUNCTION latchkey_found(scopes text[], keys text[], moment timestamptz)
RETURNS TABLE (
  place integer, now float8, print text, lease float8, status integer, head text, body bytea, expires float8
)
LANGUAGE plpgsql VOLATILE ROWS 10
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  mine CONSTANT xid := pg_current_xact_id_if_assigned()::xid;
BEGIN
  RETURN QUERY
  SELECT c.position::integer, NULL::float8, r.fingerprint,
    CASE WHEN r.state = 'in_progress' AND r.owner_session IS NULL AND r.lease_until > moment
      THEN (extract(epoch FROM r.lease_until) * 1000)::float8 END,
    CASE WHEN r.is_tellable THEN r.response_status::integer END,
    CASE WHEN r.is_tellable THEN r.response_head END,
    CASE WHEN r.is_tellable THEN r.response_body END,
    (extract(epoch FROM r.expires_at) * 1000)::float8
  FROM unnest(scopes, keys) WITH ORDINALITY AS c (scope, key, position)
  LEFT JOIN LATERAL (
    SELECT xmin, *, state = 'completed' AND expires_at > moment AND coalesce(octet_length(response_body), 0) <= 16384
      AS is_tellable
    FROM latchkey_records AS r WHERE r.scope = c.scope AND r.key = c.key OFFSET 0
  ) AS r ON true
  WHERE mine IS NULL OR r.xmin IS NULL OR r.xmin <> mine;
END
$$;

-- Inserts a record for each position that has none. Answers with a row for the batch (place NULL, the time, and as the
-- status how many were inserted), and after it with a row for each position whose record was not. With look, it first
-- looks, which is faster where most are there already: if all are, their rows come before the row of the batch, which
-- then has no status.
--
-- What many calls have in common is sent once, and kinds says which of it belongs to a position. Kept requests are only
-- sent if there are any.
CREATE FUNCTION latchkey_reserve_batch(
  look boolean, scopes text[], keys text[], fingerprints text[], owners text[], kinds integer[],
  crashes text[], sessions integer[], leases float8[], retentions float8[], states text[], routes text[],
  reconciles float8[], heads text[], bodies bytea[]
) RETURNS TABLE (
  place integer, now float8, print text, lease float8, status integer, head text, body bytea, expires float8
)
LANGUAGE plpgsql VOLATILE ROWS 10
SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  moment CONSTANT timestamptz := date_trunc('milliseconds', now());
  known integer;
BEGIN
  now := extract(epoch FROM moment) * 1000;
  IF look THEN
    RETURN QUERY SELECT * FROM latchkey_found(scopes, keys, moment) WHERE print IS NOT NULL;
    GET DIAGNOSTICS known = ROW_COUNT;
    IF known = cardinality(keys) THEN
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;
  INSERT INTO latchkey_records (
    scope, key, fingerprint, owner, on_crash, owner_session, lease_until, expires_at, state, route, reconcile_ms,
    fence, resume_after, created_at, request_head, request_body)
  SELECT c.scope, c.key, c.fingerprint, c.owner, crashes[c.kind], sessions[c.kind],
    moment + leases[c.kind] * interval '1 millisecond', moment + retentions[c.kind] * interval '1 millisecond',
    states[c.kind], routes[c.kind], reconciles[c.kind], CASE states[c.kind] WHEN 'pending' THEN 0 ELSE 1 END,
    CASE states[c.kind] WHEN 'pending' THEN moment END, moment, heads[c.position], bodies[c.position]
  FROM unnest(scopes, keys, fingerprints, owners, kinds) WITH ORDINALITY
    AS c (scope, key, fingerprint, owner, kind, position)
  ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS status = ROW_COUNT;
  RETURN NEXT;
  IF status < cardinality(keys) THEN
    RETURN QUERY SELECT * FROM latchkey_found(scopes, keys, moment);
  END IF;
END
$$;

-- Ends leases with their outcomes. Answers with the time, and with the positions that held their record if not all did.
-- An owner's name is used for one reservation only, so that with its fence it says which record is meant.
CREATE FUNCTION latchkey_complete_batch(
  scopes text[], keys text[], fences integer[], owners text[], bodies bytea[], kinds integer[],
  statuses integer[], heads text[], retentions float8[]
) RETURNS TABLE (now float8, places text)
LANGUAGE plpgsql VOLATILE ROWS 1
SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  moment CONSTANT timestamptz := date_trunc('milliseconds', now());
  settled integer;
BEGIN
  UPDATE latchkey_records AS r SET
    state = 'completed',
    response_status = statuses[c.kind],
    response_head = heads[c.kind],
    response_body = c.body,
    completed_at = moment,
    expires_at = moment + retentions[c.kind] * interval '1 millisecond',
    watched = CASE WHEN r.watched THEN latchkey_tell(r.scope, r.key) ELSE false END,
    owner_session = NULL,
    lease_until = NULL,
    request_head = NULL,
    request_body = NULL
  FROM unnest(latchkey_find(scopes, keys), fences, owners, bodies, kinds) AS c (place, fence, owner, body, kind)
  WHERE r.ctid = c.place AND r.fence = c.fence AND r.owner = c.owner AND r.state = 'in_progress';
  GET DIAGNOSTICS settled = ROW_COUNT;
  now := extract(epoch FROM moment) * 1000;
  IF settled < cardinality(keys) THEN
    places := latchkey_written(scopes, keys);
  END IF;
  RETURN NEXT;
END
$$;

-- Ends leases without an outcome. What does not belong to the new state is NULL. Answers with those that held their record.
CREATE FUNCTION latchkey_give_up_batch(
  scopes text[], keys text[], fences integer[], owners text[], states text[], reasons text[], retentions float8[],
  resumes float8[], reconciles float8[]
) RETURNS TABLE (place integer, expires float8)
LANGUAGE plpgsql VOLATILE ROWS 10
SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  moment CONSTANT timestamptz := date_trunc('milliseconds', now());
BEGIN
  RETURN QUERY
  WITH settled AS (
    UPDATE latchkey_records AS r SET
      state = c.state,
      reason = c.reason,
      expires_at = coalesce(moment + c.retention * interval '1 millisecond', r.expires_at),
      resume_after = moment + c.resume * interval '1 millisecond',
      reconcile_after = moment + c.reconcile * interval '1 millisecond',
      -- Whoever waits goes on waiting, for the next attempt.
      watched = CASE WHEN r.watched THEN NOT latchkey_tell(r.scope, r.key) ELSE false END,
      owner_session = NULL,
      lease_until = NULL
    FROM unnest(latchkey_find(scopes, keys), fences, owners, states, reasons, retentions, resumes, reconciles)
      WITH ORDINALITY AS c (place, fence, owner, state, reason, retention, resume, reconcile, position)
    WHERE r.ctid = c.place AND r.fence = c.fence AND r.owner = c.owner AND r.state = 'in_progress'
    RETURNING r.scope, r.key, r.fence, r.state, r.owner, r.reason, r.expires_at, c.position
  ),
  audited AS (
    INSERT INTO latchkey_audit (at, scope, key, fence, from_state, to_state, actor, reason)
    SELECT moment, scope, key, fence, 'in_progress', state, owner, reason FROM settled
  )
  SELECT position::integer, (extract(epoch FROM expires_at) * 1000)::float8 FROM settled;
END
$$;

-- Writes down how far executions have come. Answers with the positions that held their record if not all did.
CREATE FUNCTION latchkey_advance_batch(
  scopes text[], keys text[], fences integer[], owners text[], progresses text[], crashes text[]
) RETURNS TABLE (places text)
LANGUAGE plpgsql VOLATILE ROWS 1
SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH held AS (
    UPDATE latchkey_records AS r SET progress = c.progress, on_crash = c.crash
    FROM unnest(latchkey_find(scopes, keys), fences, owners, progresses, crashes) WITH ORDINALITY
      AS c (place, fence, owner, progress, crash, position)
    WHERE r.ctid = c.place AND r.fence = c.fence AND r.owner = c.owner AND r.state = 'in_progress'
    RETURNING c.position
  )
  SELECT CASE WHEN count(*) < cardinality(keys) THEN coalesce(string_agg(position::text, ','), '') END FROM held;
END
$$;

-- Extends leases. Answers with the positions that held their record if not all did.
CREATE FUNCTION latchkey_renew_batch(
  scopes text[], keys text[], fences integer[], owners text[], lease float8
) RETURNS TABLE (places text)
LANGUAGE plpgsql VOLATILE ROWS 1
SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  WITH held AS (
    UPDATE latchkey_records AS r SET lease_until = date_trunc('milliseconds', now()) + lease * interval '1 millisecond'
    FROM unnest(latchkey_find(scopes, keys), fences, owners) WITH ORDINALITY
      AS c (place, fence, owner, position)
    WHERE r.ctid = c.place AND r.fence = c.fence AND r.owner = c.owner AND r.state = 'in_progress'
    RETURNING c.position
  )
  SELECT CASE WHEN count(*) < cardinality(keys) THEN coalesce(string_agg(position::text, ','), '') END FROM held;
END
$$;

-- The same for one call, without the arrays: what a lone caller waits for. Place is NULL if the record was inserted.
CREATE FUNCTION latchkey_reserve_one(
  its_scope text, its_key text, fingerprint text, owner text, crash text, session integer, lease_ms float8,
  retention float8, its_state text, route text, reconcile float8
) RETURNS TABLE (
  place integer, now float8, print text, lease float8, status integer, head text, body bytea, expires float8
)
LANGUAGE plpgsql VOLATILE ROWS 1
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_variable
DECLARE
  moment CONSTANT timestamptz := date_trunc('milliseconds', now());
  inserted integer;
BEGIN
  INSERT INTO latchkey_records AS r (
    scope, key, fingerprint, owner, on_crash, owner_session, lease_until, expires_at, state, route, reconcile_ms,
    fence, resume_after, created_at)
  VALUES (its_scope, its_key, fingerprint, owner, crash, session, moment + lease_ms * interval '1 millisecond',
    moment + retention * interval '1 millisecond', its_state, route, reconcile,
    CASE its_state WHEN 'pending' THEN 0 ELSE 1 END, CASE its_state WHEN 'pending' THEN moment END, moment)
  ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS inserted = ROW_COUNT;
  IF inserted = 0 THEN
    SELECT f.place, f.print, f.lease, f.status, f.head, f.body, f.expires
    INTO place, print, lease, status, head, body, expires
    FROM latchkey_found(ARRAY[its_scope], ARRAY[its_key], moment) AS f;
  END IF;
  now := extract(epoch FROM moment) * 1000;
  RETURN NEXT;
END
$$;

-- Answers with the time, or with NULL if the lease did not hold the record. The state is compared in a way that no
-- partial index knows: only the primary key is left.
CREATE FUNCTION latchkey_complete_one(
  its_scope text, its_key text, its_fence integer, its_owner text, status integer, head text, body bytea,
  retention float8
) RETURNS float8
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  moment CONSTANT timestamptz := date_trunc('milliseconds', now());
  settled integer;
BEGIN
  UPDATE latchkey_records AS r SET
    state = 'completed',
    response_status = status,
    response_head = head,
    response_body = body,
    completed_at = moment,
    expires_at = moment + retention * interval '1 millisecond',
    watched = CASE WHEN r.watched THEN latchkey_tell(r.scope, r.key) ELSE false END,
    owner_session = NULL,
    lease_until = NULL,
    request_head = NULL,
    request_body = NULL
  WHERE r.scope = its_scope AND r.key = its_key AND r.fence = its_fence AND r.owner = its_owner
    AND (r.state = 'in_progress') IS TRUE;
  GET DIAGNOSTICS settled = ROW_COUNT;
  IF settled = 0 THEN
    RETURN NULL;
  END IF;
  RETURN extract(epoch FROM moment) * 1000;
END
$$;
