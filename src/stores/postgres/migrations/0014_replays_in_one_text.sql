-- Answers that are known already travel in one text for a whole batch.
--
-- Before, each of them was a row of eight columns, all written and read by themselves, with a body in hexadecimal, twice as long
-- as it is. Now a batch most of which is expected to have been answered is told all of these answers in one piece; what is left
-- of it is reserved as ever, by the same statement.
--
-- Processes of the version before go on working.

-- As latchkey_reserve_batch after a look. The answers that are known, and whose requests are the same, are in the row whose place
-- is 0, as its head: for each of them its place in the batch, its status, when it expires, the lengths of its head and of its
-- body as they stand here, how the body is written, then both, and the end of a line. All of it is ASCII, so that everybody
-- counts alike, whatever the encoding of the database. A body is written as it is, but for escapes, or in hexadecimal if that
-- would make it longer.
CREATE FUNCTION latchkey_reserve_known(
  scopes text[], keys text[], fingerprints text[], owners text[], kinds integer[],
  crashes text[], sessions integer[], leases float8[], retentions float8[], states text[], routes text[],
  reconciles float8[], heads text[], bodies bytea[]
) RETURNS TABLE (
  place integer, now float8, print text, lease float8, status integer, head text, body bytea, expires float8
)
LANGUAGE plpgsql VOLATILE ROWS 10
SET enable_seqscan = off SET enable_indexscan = on SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_variable
DECLARE
  moment CONSTANT timestamptz := date_trunc('milliseconds', now());
  is_utf8 CONSTANT boolean := getdatabaseencoding() = 'UTF8';
  rest integer[];
BEGIN
  SELECT string_agg(known.answer || E'\n', ''), array_agg(i) FILTER (WHERE known.answer IS NULL) INTO head, rest
  FROM generate_series(1, cardinality(keys)) AS i
  LEFT JOIN LATERAL (
    SELECT concat(i, ' ', r.response_status, ' ',
      (date_part('epoch', coalesce(r.kept_until, r.expires_at)) * 1000)::bigint, ' ', octet_length(r.response_head), ' ',
      CASE WHEN escaped.is_short THEN concat(octet_length(escaped.body), 'e', r.response_head, escaped.body)
        ELSE concat(2 * octet_length(r.response_body), 'x', r.response_head, encode(r.response_body, 'hex')) END) AS answer
    FROM latchkey_records AS r
    CROSS JOIN LATERAL (
      SELECT e AS body, octet_length(e) <= 2 * octet_length(r.response_body) AS is_short
      FROM (SELECT coalesce(encode(r.response_body, 'escape'), '') AS e OFFSET 0) AS e OFFSET 0
    ) AS escaped
    WHERE r.scope = scopes[i] AND r.key = keys[i] AND r.fingerprint = fingerprints[i]
      AND r.state = 'completed' AND coalesce(r.kept_until, r.expires_at) > moment
      AND coalesce(octet_length(r.response_body), 0) <= 16384
      AND isfinite(coalesce(r.kept_until, r.expires_at))
      -- The first is faster. In SQL_ASCII every byte is a character, and elsewhere one byte may be any letter.
      AND CASE WHEN is_utf8 THEN octet_length(r.response_head) = length(r.response_head)
        ELSE r.response_head !~ '[^\x01-\x7f]' END
    OFFSET 0
  ) AS known ON true;
  now := extract(epoch FROM moment) * 1000;
  place := 0;
  RETURN NEXT;
  IF rest IS NULL THEN
    RETURN;
  END IF;
  RETURN QUERY
  SELECT rest[b.place], b.now, b.print, b.lease, b.status, b.head, b.body, b.expires
  FROM latchkey_reserve_batch(
    true, ARRAY(SELECT scopes[i] FROM unnest(rest) AS i), ARRAY(SELECT keys[i] FROM unnest(rest) AS i),
    ARRAY(SELECT fingerprints[i] FROM unnest(rest) AS i), ARRAY(SELECT owners[i] FROM unnest(rest) AS i),
    ARRAY(SELECT kinds[i] FROM unnest(rest) AS i), crashes, sessions, leases, retentions, states, routes, reconciles,
    ARRAY(SELECT heads[i] FROM unnest(rest) AS i), ARRAY(SELECT bodies[i] FROM unnest(rest) AS i)) AS b;
END
$$;
