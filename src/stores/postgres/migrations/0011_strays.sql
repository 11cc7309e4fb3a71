-- Requests whose rows have been written since they were reserved, in batches of others whose rows have not.
--
-- Somebody waits for one of them, or its lease was renewed: then it is looked for by its name, and the others are completed
-- where they are. Before, such a row had its whole batch taken back and looked for, and the next batches as well.
--
-- Processes of the version before go on working.

-- Where the records that these leases hold are now, but for the positions of those that are done; NULL where one holds none
-- any more, or somebody else is just writing it. Nobody is waited for, so that it does not matter what was locked before, and
-- those that are found stay where they are.
CREATE FUNCTION latchkey_find_held(
  scopes text[], keys text[], fences integer[], owners text[], done integer[]
) RETURNS tid[]
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  RETURN ARRAY(
    SELECT CASE WHEN i = ANY (done) THEN NULL ELSE (
      SELECT r.ctid FROM latchkey_records AS r
      WHERE r.scope = scopes[i] AND r.key = keys[i] AND r.fence = fences[i] AND r.owner = owners[i]
        AND r.state = 'in_progress'
      FOR UPDATE SKIP LOCKED) END
    FROM generate_series(1, cardinality(keys)) AS i);
END
$$;

-- As before, but a row that is not where it was is looked for, and only it. Where most of them are not, whoever asks should look
-- for all of the next ones.
CREATE OR REPLACE FUNCTION latchkey_complete_alike(
  rows tid[], scopes text[], keys text[], fences integer[], owners text[], bodies bytea[],
  heads text[], statuses integer[], retentions float8[]
) RETURNS TABLE (now float8, places text, strays boolean)
LANGUAGE plpgsql VOLATILE ROWS 1
SET enable_seqscan = off SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_variable
DECLARE
  moment CONSTANT timestamptz(3) := date_trunc('milliseconds', now());
  until CONSTANT timestamptz(3) := moment + retentions[1] * interval '1 millisecond';
  -- What would first have expired after this, and not after the answer, expires when it would have: see latchkey_expiry.
  since CONSTANT timestamptz(3) := until - interval '600 seconds';
  its_status CONSTANT smallint := statuses[1];
  last_head CONSTANT integer := cardinality(heads);
  asked CONSTANT integer := cardinality(keys);
  done integer[];
BEGIN
  now := extract(epoch FROM moment) * 1000;
  LOOP
    WITH written AS (
      UPDATE latchkey_records AS r SET
        state = 'completed',
        response_status = its_status,
        response_head = heads[least(i, last_head)],
        response_body = bodies[i],
        completed_at = moment,
        expires_at = CASE WHEN r.expires_at BETWEEN since AND until THEN r.expires_at ELSE until END,
        kept_until = CASE WHEN r.expires_at BETWEEN since AND until THEN until END,
        watched = CASE WHEN r.watched THEN latchkey_tell(r.scope, r.key) ELSE false END,
        owner_session = NULL,
        lease_until = NULL,
        lapses_at = NULL,
        request_head = NULL,
        request_body = NULL
      FROM generate_series(1, asked) AS i
      WHERE r.ctid = rows[i] AND r.scope = scopes[i] AND r.key = keys[i] AND r.fence = fences[i] AND r.owner = owners[i]
        AND r.state = 'in_progress'
      RETURNING i
    )
    SELECT done || array_agg(i) INTO done FROM written;
    EXIT WHEN cardinality(done) = asked OR strays IS NOT NULL;
    strays := coalesce(cardinality(done), 0) < asked / 2;
    rows := latchkey_find_held(scopes, keys, fences, owners, done);
  END LOOP;
  strays := coalesce(strays, false);
  IF cardinality(done) IS DISTINCT FROM asked THEN
    places := coalesce(array_to_string(done, ','), '');
  END IF;
  RETURN NEXT;
END
$$;
