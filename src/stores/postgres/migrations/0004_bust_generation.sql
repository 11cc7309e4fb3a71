-- By what answers are named that are kept outside of this database: see bustGeneration in the store contract. One row,
-- written by every bust. A number that is counted up would not do: after a failover that lost it, it would be used again.
CREATE TABLE latchkey_busts (
  id    integer PRIMARY KEY CHECK (id = 1),
  token uuid NOT NULL
) WITH (fillfactor = 20);

INSERT INTO latchkey_busts (id, token) VALUES (1, gen_random_uuid());

-- The rest of the name says which database this is, and since when: another timeline after a failover or a recovery to an
-- earlier point in time, which may have lost what was answered already; another start after a crash, or where an older copy of
-- the disk was started; another system or table where a dump was restored.
CREATE FUNCTION latchkey_bust_generation() RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  life text := extract(epoch FROM pg_postmaster_start_time())::text;
BEGIN
  BEGIN
    life := life || ':' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
                 || ':' || (SELECT system_identifier FROM pg_control_system());
  EXCEPTION WHEN OTHERS THEN
    NULL; -- Some hosted servers do not tell. Each start is another life there as well.
  END;
  RETURN life || ':' || 'latchkey_records'::regclass::oid || ':' || (SELECT token FROM latchkey_busts);
END
$$;
