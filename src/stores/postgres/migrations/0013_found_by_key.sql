-- A record is found through the primary key, whatever the planner believes of the table.
--
-- The index of times has scope and key as well. To a planner that has been told that there is no record, or one, it is as good
-- a way to a key as the primary key is; and a plan that is made then, after a night in which the reaper has removed everything,
-- is kept while the table grows. Each key was then looked for in all of that index, until the next ANALYZE.
--
-- Now that index has a condition which is always true, and which only those statements repeat that are for this index.
--
-- Processes of the version before go on working, but their lists, in the console, read the whole table until they are replaced.
-- The index is made while nobody can read or write: a few seconds for a million records. Where that is too long, make it
-- beforehand with CREATE INDEX CONCURRENTLY, under this name; then it is found here.

-- First, because it locks the table against everybody. Made after the new one, that had locked it against those who write, who
-- had then read already and waited to write: a deadlock.
DROP INDEX latchkey_records_created;

-- What a CREATE INDEX CONCURRENTLY has left behind that did not come to its end.
DO $$
BEGIN
  IF EXISTS (
    SELECT FROM pg_index WHERE indexrelid = to_regclass('latchkey_records_latest') AND NOT indisvalid
  ) THEN
    DROP INDEX latchkey_records_latest;
  END IF;
END
$$;

CREATE INDEX IF NOT EXISTS latchkey_records_latest ON latchkey_records (created_at, scope, key)
  WHERE created_at > '-infinity';

-- As in 0008_settling_in_place, but for that condition.
CREATE OR REPLACE FUNCTION latchkey_list_leases() RETURNS boolean
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
    FROM latchkey_records WHERE created_at >= begun AND created_at > '-infinity' ORDER BY created_at LIMIT most
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
