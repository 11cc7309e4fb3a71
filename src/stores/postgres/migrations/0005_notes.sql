-- Small facts that all processes share, such as the counters of a limit. Some are rewritten many times a second: with room
-- on the page, and with nothing indexed but the name, the new version takes the place of the old.
CREATE TABLE latchkey_notes (
  name       text COLLATE "C" PRIMARY KEY,
  -- A JSON string: text cannot hold U+0000, and a note may.
  value      text NOT NULL,
  -- Another one after every write. Whoever has read it may write, unless somebody else was faster.
  version    text NOT NULL,
  -- NULL: for ever.
  expires_at timestamptz(3)
) WITH (fillfactor = 50);

-- Writes notes, each from the version that its position expects (NULL: there is none) to the next (NULL: it is removed).
-- Answers with the positions that somebody else was faster at and with what is there, and last with the time.
--
-- A function, because each of its statements sees what was committed before it: what is there is not known to the
-- snapshot of a statement that had to wait for it. No name comes twice, and all batches are sorted by name, so that no
-- two of them wait for each other.
CREATE FUNCTION latchkey_note_batch(
  names text[], expected text[], versions text[], texts text[], lifetimes float8[]
) RETURNS TABLE (place integer, now float8, version text, value text)
LANGUAGE plpgsql VOLATILE ROWS 2
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  moment CONSTANT timestamptz := date_trunc('milliseconds', now());
  until timestamptz;
BEGIN
  now := extract(epoch FROM moment) * 1000;
  FOR i IN 1..cardinality(names) LOOP
    until := moment + lifetimes[i] * interval '1 millisecond';
    LOOP
      IF expected[i] IS NOT NULL AND versions[i] IS NOT NULL THEN
        UPDATE latchkey_notes AS n SET value = texts[i], version = versions[i], expires_at = until
        WHERE n.name = names[i] AND n.version = expected[i] AND (n.expires_at IS NULL OR n.expires_at > moment);
        EXIT WHEN FOUND;
      ELSIF expected[i] IS NOT NULL THEN
        DELETE FROM latchkey_notes AS n
        WHERE n.name = names[i] AND n.version = expected[i] AND (n.expires_at IS NULL OR n.expires_at > moment);
        EXIT WHEN FOUND;
      ELSIF versions[i] IS NOT NULL THEN
        INSERT INTO latchkey_notes AS n (name, value, version, expires_at)
        VALUES (names[i], texts[i], versions[i], until)
        ON CONFLICT (name) DO UPDATE SET value = excluded.value, version = excluded.version,
          expires_at = excluded.expires_at
        WHERE n.expires_at <= moment;
        EXIT WHEN FOUND;
      END IF;
      SELECT n.version, n.value INTO version, value FROM latchkey_notes AS n
      WHERE n.name = names[i] AND (n.expires_at IS NULL OR n.expires_at > moment);
      IF FOUND OR expected[i] IS NOT NULL THEN
        place := i;
        RETURN NEXT;
        EXIT;
      END IF;
      -- There is none, as expected: nothing to remove, or what was in the way is gone meanwhile.
      EXIT WHEN versions[i] IS NULL;
    END LOOP;
  END LOOP;
  place := NULL;
  version := NULL;
  value := NULL;
  RETURN NEXT;
END
$$;
