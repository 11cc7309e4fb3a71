-- Whoever finds a request under way, and is going to wait for it, has its end told by the statement that found it: before, a
-- second statement asked for that.
--
-- Processes of the version before go on working.

-- Has somebody told when a request ends that is under way, and answers whether somebody will be. False if it has just ended, or
-- if somebody is just writing it, for whom nobody waits here: this is called in the midst of a batch.
--
-- If nothing else was written in the same transaction, it need not be on disk before it is answered: whoever is not told looks
-- by himself after a second.
CREATE FUNCTION latchkey_tell_of(its_scope text, its_key text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  IF pg_current_xact_id_if_assigned() IS NULL THEN
    PERFORM set_config('synchronous_commit', 'off', true);
  END IF;
  PERFORM FROM latchkey_records AS r
  WHERE r.scope = its_scope AND r.key = its_key AND r.state = 'in_progress' AND NOT r.watched
  FOR NO KEY UPDATE SKIP LOCKED;
  IF FOUND THEN
    UPDATE latchkey_records AS r SET watched = true WHERE r.scope = its_scope AND r.key = its_key;
    RETURN true;
  END IF;
  -- Somebody waits for it already. Even if it is just being completed: that is told at its commit, which is still to come.
  RETURN EXISTS (
    SELECT FROM latchkey_records AS r
    WHERE r.scope = its_scope AND r.key = its_key AND r.state = 'in_progress' AND r.watched);
END
$$;
