-- Settling a request changes nothing that is indexed.
--
-- An update writes its row into every index again, unless nothing that any index is about, in its columns or its condition,
-- has changed, and the new version fits on the page of the old ("heap-only"). Here the state was part of nine conditions,
-- and both the lease and the expiry were indexed: reserving and settling a key was six insertions into indexes. Now it is
-- three. Measured: a quarter less of the server's time and of the log, and no index entries of dead versions to vacuum.
--
-- BREAKING: processes of the version before cannot write failures any more, for want of the column that is new, and their
-- workers would read the whole table for want of the indexes that are gone. Stop them before.
--
-- All of this happens while nobody can write: some seconds for a million records, most of it for the index on expires_at.

ALTER TABLE latchkey_records
  -- The state, where a request is neither under way nor done; NULL on the happy path.
  ADD COLUMN unusual    text,
  -- The lease, once it is listed: see latchkey_list_leases. NULL while it is not.
  ADD COLUMN lapses_at  timestamptz(3),
  -- Until when an answer is kept, if that is not expires_at but soon after it.
  ADD COLUMN kept_until timestamptz(3);

UPDATE latchkey_records SET unusual = state WHERE state IN ('pending', 'failed_retryable', 'unknown', 'expired');
UPDATE latchkey_records SET lapses_at = lease_until WHERE state = 'in_progress';

-- What workers and operators go by is there, and nothing that says otherwise.
CREATE FUNCTION latchkey_is_findable(
  state text, owner_session integer, reconcile_after timestamptz, reason text, response_body bytea,
  resume_after timestamptz, escalated_at timestamptz, request_head text
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN state IN ('pending', 'failed_retryable', 'unknown', 'expired')
    AND owner_session IS NULL
    AND response_body IS NULL
    AND (state = 'unknown') = (reconcile_after IS NOT NULL)
    AND (state IN ('unknown', 'failed_retryable')) = (reason IS NOT NULL)
    AND (state <> 'pending' OR resume_after IS NOT NULL)
    AND (state IN ('pending', 'failed_retryable') OR resume_after IS NULL)
    AND (state = 'unknown' OR escalated_at IS NULL)
    AND (state <> 'expired' OR request_head IS NULL);
END
$$;

-- Every statement reads and compiles its table's conditions anew, and calls their functions for every row. The one that was
-- here took a tenth of the server's time, so the happy path is left with four, and no call.
ALTER TABLE latchkey_records DROP CONSTRAINT latchkey_records_whole;
DROP FUNCTION latchkey_is_whole;
ALTER TABLE latchkey_records ADD CONSTRAINT latchkey_records_whole CHECK (
  unusual IS NOT DISTINCT FROM nullif(nullif(state, 'in_progress'), 'completed')
  AND on_crash IN ('reconcile', 'resume', 'retry')
  AND (state = 'in_progress') = (lease_until IS NOT NULL)
  AND (state = 'completed') = (response_head IS NOT NULL)
  AND (unusual IS NULL OR latchkey_is_findable(
    state, owner_session, reconcile_after, reason, response_body, resume_after, escalated_at, request_head))
) NOT VALID; -- The condition of before vouches for the records of before.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM latchkey_records) THEN
    ALTER TABLE latchkey_records VALIDATE CONSTRAINT latchkey_records_whole;
  END IF;
  -- Room on the page for the second version, with its answer: rows are reserved on the first 30 % of a page, and settled on the
  -- rest. What the first versions leave behind was free space anywhere before, and is free space here.
  IF (SELECT relkind FROM pg_class WHERE oid = 'latchkey_records'::regclass) = 'r' THEN
    ALTER TABLE latchkey_records SET (fillfactor = 30);
  END IF;
END
$$;

DROP INDEX latchkey_records_lease;
DROP INDEX latchkey_records_expiry;
DROP INDEX latchkey_records_expired;
DROP INDEX latchkey_records_reconcile;
DROP INDEX latchkey_records_unclaimed;
DROP INDEX latchkey_records_unusual;

-- For the sweeper, and for whoever looks at what is under way: leases that are listed, by their end.
CREATE INDEX latchkey_records_lease ON latchkey_records (lapses_at) WHERE lapses_at IS NOT NULL;

-- For the reaper: answers, and what is under way, by when they may first expire.
CREATE INDEX latchkey_records_expiry ON latchkey_records (expires_at) WHERE unusual IS NULL;

-- What was kept for audit has an index of its own, or the reaper would wade through all of it to reach its work.
CREATE INDEX latchkey_records_expired ON latchkey_records (expires_at) WHERE unusual = 'expired';

-- For the reaper: failures that nobody has tried again. For the sweeper: accepted requests that nobody executes, and what is
-- half done and nobody goes on with.
CREATE INDEX latchkey_records_unclaimed ON latchkey_records (expires_at)
  WHERE unusual IN ('pending', 'failed_retryable');

-- For the reconciler: unknown outcomes by when they may be asked about.
CREATE INDEX latchkey_records_reconcile ON latchkey_records (reconcile_after)
  WHERE unusual = 'unknown' AND escalated_at IS NULL;

-- For lists: by state, if it is one of these.
CREATE INDEX latchkey_records_unusual ON latchkey_records (unusual, created_at, scope, key) WHERE unusual IS NOT NULL;

-- When an answer expires that is kept until a moment, and whose request was first to expire earlier. Within ten minutes that is
-- left as it is, because it is indexed, and the exact moment is written beside it: the reaper comes a little early, and looks.
CREATE FUNCTION latchkey_expiry(before timestamptz, until timestamptz) RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT CASE WHEN until BETWEEN before AND before + interval '600 seconds' THEN before ELSE until END $$;

CREATE FUNCTION latchkey_kept(before timestamptz, until timestamptz) RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT CASE WHEN until BETWEEN before AND before + interval '600 seconds' THEN until END $$;

-- How far leases have been listed.
CREATE TABLE latchkey_sweeps (
  id     integer PRIMARY KEY CHECK (id = 1),
  -- Whatever was reserved before this moment, and is under way, is listed.
  seen   timestamptz NOT NULL,
  -- When somebody looked last.
  looked timestamptz NOT NULL
) WITH (fillfactor = 20);

INSERT INTO latchkey_sweeps (id, seen, looked) VALUES (1, now() - interval '1 minute', now());

-- Lists the leases of what is still under way. Most requests are done within milliseconds, and putting each on a list and
-- taking it off again cost more than the rest of it; so the sweeper goes through what was reserved since it came last, and
-- lists what it finds under way. Renewed leases, and those of further attempts, are listed by whoever writes them.
--
-- Answers whether every lease is listed now: not if there was too much to go through in one call, if somebody else was at
-- it, or if nothing can be written here.
--
-- A reservation is seen after its commit, which is later than its time. So each call begins five seconds before the one
-- before it. What took longer to commit, and whose process died as well, is found by its next request or by the reaper.
CREATE FUNCTION latchkey_list_leases() RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  most CONSTANT integer := 250000; -- records that are gone through in a fraction of a second
  overlap CONSTANT interval := interval '5 seconds';
  begun timestamptz;
  before timestamptz;
  count integer;
  reached timestamptz;
  scopes text[];
  keys text[];
BEGIN
  IF pg_is_in_recovery() THEN
    RETURN false;
  END IF;
  SELECT seen, looked INTO begun, before FROM latchkey_sweeps WHERE id = 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  SELECT count(*), max(created_at), array_agg(scope) FILTER (WHERE is_unlisted), array_agg(key) FILTER (WHERE is_unlisted)
  INTO count, reached, scopes, keys
  FROM (
    SELECT created_at, scope, key, state = 'in_progress' AND lapses_at IS NULL AS is_unlisted
    FROM latchkey_records WHERE created_at >= begun ORDER BY created_at LIMIT most
  ) AS found;
  -- What others have locked is being settled, and is passed by: the next call comes by again, whatever becomes of it.
  WITH under_way AS (
    SELECT r.scope, r.key FROM unnest(scopes, keys) AS c (scope, key)
    JOIN latchkey_records AS r ON r.scope = c.scope AND r.key = c.key
    WHERE r.state = 'in_progress' AND r.lapses_at IS NULL
    FOR UPDATE OF r SKIP LOCKED
  )
  UPDATE latchkey_records AS r SET lapses_at = r.lease_until
  FROM under_way AS u WHERE r.scope = u.scope AND r.key = u.key;
  -- Where a clock was set back, it begins anew.
  UPDATE latchkey_sweeps SET looked = now(), seen = least(
    greatest(begun, least(before - overlap, CASE WHEN count = most THEN reached END)),
    now() - overlap)
  WHERE id = 1;
  RETURN count < most;
EXCEPTION WHEN insufficient_privilege OR read_only_sql_transaction THEN
  RETURN false;
END
$$;

-- What the functions of 0003_batches have to do differently.

CREATE OR REPLACE FUNCTION latchkey_found(scopes text[], keys text[], moment timestamptz)
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
    (extract(epoch FROM coalesce(r.kept_until, r.expires_at)) * 1000)::float8
  FROM unnest(scopes, keys) WITH ORDINALITY AS c (scope, key, position)
  LEFT JOIN LATERAL (
    SELECT xmin, *, state = 'completed' AND coalesce(kept_until, expires_at) > moment
      AND coalesce(octet_length(response_body), 0) <= 16384 AS is_tellable
    FROM latchkey_records AS r WHERE r.scope = c.scope AND r.key = c.key OFFSET 0
  ) AS r ON true
  WHERE mine IS NULL OR r.xmin IS NULL OR r.xmin <> mine;
END
$$;

CREATE OR REPLACE FUNCTION latchkey_reserve_batch(
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
    fence, resume_after, created_at, request_head, request_body, unusual)
  SELECT c.scope, c.key, c.fingerprint, c.owner, crashes[c.kind], sessions[c.kind],
    moment + leases[c.kind] * interval '1 millisecond', moment + retentions[c.kind] * interval '1 millisecond',
    states[c.kind], routes[c.kind], reconciles[c.kind], CASE states[c.kind] WHEN 'pending' THEN 0 ELSE 1 END,
    CASE states[c.kind] WHEN 'pending' THEN moment END, moment, heads[c.position], bodies[c.position],
    nullif(states[c.kind], 'in_progress')
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

-- The same for a batch of which all are expected to be new. Looking for each key before it is inserted, and taking it back if
-- somebody was faster, costs a tenth of an insertion; here a key that is not new after all takes back the whole batch,
-- which is then reserved as above.
CREATE FUNCTION latchkey_reserve_fresh(
  scopes text[], keys text[], fingerprints text[], owners text[], kinds integer[],
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
BEGIN
  BEGIN
    INSERT INTO latchkey_records (
      scope, key, fingerprint, owner, on_crash, owner_session, lease_until, expires_at, state, route, reconcile_ms,
      fence, resume_after, created_at, request_head, request_body, unusual)
    SELECT c.scope, c.key, c.fingerprint, c.owner, crashes[c.kind], sessions[c.kind],
      moment + leases[c.kind] * interval '1 millisecond', moment + retentions[c.kind] * interval '1 millisecond',
      states[c.kind], routes[c.kind], reconciles[c.kind], CASE states[c.kind] WHEN 'pending' THEN 0 ELSE 1 END,
      CASE states[c.kind] WHEN 'pending' THEN moment END, moment, heads[c.position], bodies[c.position],
      nullif(states[c.kind], 'in_progress')
    FROM unnest(scopes, keys, fingerprints, owners, kinds) WITH ORDINALITY
      AS c (scope, key, fingerprint, owner, kind, position);
    now := extract(epoch FROM moment) * 1000;
    status := cardinality(keys);
    RETURN NEXT;
    RETURN;
  EXCEPTION WHEN unique_violation THEN
    NULL; -- Nothing of it has happened.
  END;
  RETURN QUERY SELECT * FROM latchkey_reserve_batch(false, scopes, keys, fingerprints, owners, kinds, crashes, sessions,
    leases, retentions, states, routes, reconciles, heads, bodies);
END
$$;

CREATE OR REPLACE FUNCTION latchkey_complete_batch(
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
    expires_at = latchkey_expiry(r.expires_at, moment + retentions[c.kind] * interval '1 millisecond'),
    kept_until = latchkey_kept(r.expires_at, moment + retentions[c.kind] * interval '1 millisecond'),
    watched = CASE WHEN r.watched THEN latchkey_tell(r.scope, r.key) ELSE false END,
    owner_session = NULL,
    lease_until = NULL,
    lapses_at = NULL,
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

CREATE OR REPLACE FUNCTION latchkey_give_up_batch(
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
      unusual = c.state,
      reason = c.reason,
      expires_at = coalesce(moment + c.retention * interval '1 millisecond', r.expires_at),
      resume_after = moment + c.resume * interval '1 millisecond',
      reconcile_after = moment + c.reconcile * interval '1 millisecond',
      -- Whoever waits goes on waiting, for the next attempt.
      watched = CASE WHEN r.watched THEN NOT latchkey_tell(r.scope, r.key) ELSE false END,
      owner_session = NULL,
      lease_until = NULL,
      lapses_at = NULL
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

CREATE OR REPLACE FUNCTION latchkey_renew_batch(
  scopes text[], keys text[], fences integer[], owners text[], lease float8
) RETURNS TABLE (places text)
LANGUAGE plpgsql VOLATILE ROWS 1
SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  until CONSTANT timestamptz := date_trunc('milliseconds', now()) + lease * interval '1 millisecond';
BEGIN
  RETURN QUERY
  WITH held AS (
    UPDATE latchkey_records AS r SET lease_until = until, lapses_at = until
    FROM unnest(latchkey_find(scopes, keys), fences, owners) WITH ORDINALITY
      AS c (place, fence, owner, position)
    WHERE r.ctid = c.place AND r.fence = c.fence AND r.owner = c.owner AND r.state = 'in_progress'
    RETURNING c.position
  )
  SELECT CASE WHEN count(*) < cardinality(keys) THEN coalesce(string_agg(position::text, ','), '') END FROM held;
END
$$;

CREATE OR REPLACE FUNCTION latchkey_reserve_one(
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
    fence, resume_after, created_at, unusual)
  VALUES (its_scope, its_key, fingerprint, owner, crash, session, moment + lease_ms * interval '1 millisecond',
    moment + retention * interval '1 millisecond', its_state, route, reconcile,
    CASE its_state WHEN 'pending' THEN 0 ELSE 1 END, CASE its_state WHEN 'pending' THEN moment END, moment,
    nullif(its_state, 'in_progress'))
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

CREATE OR REPLACE FUNCTION latchkey_complete_one(
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
    expires_at = latchkey_expiry(r.expires_at, moment + retention * interval '1 millisecond'),
    kept_until = latchkey_kept(r.expires_at, moment + retention * interval '1 millisecond'),
    watched = CASE WHEN r.watched THEN latchkey_tell(r.scope, r.key) ELSE false END,
    owner_session = NULL,
    lease_until = NULL,
    lapses_at = NULL,
    request_head = NULL,
    request_body = NULL
  WHERE r.scope = its_scope AND r.key = its_key AND r.fence = its_fence AND r.owner = its_owner
    AND r.state = 'in_progress';
  GET DIAGNOSTICS settled = ROW_COUNT;
  IF settled = 0 THEN
    RETURN NULL;
  END IF;
  RETURN extract(epoch FROM moment) * 1000;
END
$$;
