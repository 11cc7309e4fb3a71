import { newRecord } from "./records.ts";
import { expiry, fromNow, mayBeKept, milliseconds, now, ownedHere, record } from "./sql.ts";

/*
 * A records table that is partitioned by `bucket`: the time at which a record was first to expire, rounded down to the
 * width of a partition. A partition whose time is over is dropped as a whole.
 *
 * Records that no partition is for have the bucket -infinity and are in the DEFAULT partition, which takes nothing
 * else: so Postgres knows without looking through it that a new partition takes nothing away from it.
 */

/** How long a partition lasts, by the option that chooses it. */
export const partitionWidths = { day: "1 day", hour: "1 hour" } as const;

/** As far ahead as records have needed partitions so far, but no further than this: each one costs every statement. */
const partitionsAheadMax = 40;

export const defaultPartition = "latchkey_records_default";

/**
 * Replaces the empty records table by a partitioned one with the same columns, checks and indexes. Whatever the
 * migrations have made of the one is made of the other; only the primary key has to name the bucket too.
 */
export const partitionRecords = (width: keyof typeof partitionWidths) => `
DO $convert$
DECLARE
  definitions text[];
  definition text;
BEGIN
  SELECT array_agg(pg_get_indexdef(indexrelid)) INTO definitions
  FROM pg_index WHERE indrelid = 'latchkey_records'::regclass AND NOT indisprimary;
  ALTER TABLE latchkey_records RENAME TO latchkey_records_plain;
  CREATE TABLE latchkey_records (
    LIKE latchkey_records_plain INCLUDING ALL EXCLUDING INDEXES,
    bucket timestamptz NOT NULL,
    PRIMARY KEY (scope, key, bucket)
  ) PARTITION BY RANGE (bucket);
  DROP TABLE latchkey_records_plain;
  FOREACH definition IN ARRAY definitions LOOP
    EXECUTE definition;
  END LOOP;
END
$convert$;

CREATE TABLE ${defaultPartition} PARTITION OF latchkey_records DEFAULT WITH (fillfactor = 80);
ALTER TABLE ${defaultPartition} ADD CHECK (bucket = '-infinity');

CREATE FUNCTION latchkey_partition_width() RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT interval '${partitionWidths[width]}' $$;

CREATE FUNCTION latchkey_bucket(expires timestamptz) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
  SELECT date_bin(latchkey_partition_width(), expires, timestamptz '2000-01-01 00:00:00+00')
$$;

CREATE FUNCTION latchkey_partition_name(bucket timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT 'latchkey_records_' || to_char(bucket AT TIME ZONE 'UTC', 'YYYYMMDD_HH24MISS')
$$;`;

/** Its lease is listed at once: what is under way has to be known when its partition is dropped. */
const listedRecord = newRecord({ lapses: fromNow("$7") });

/**
 * Inserts a new record, if there is none. No unique index can span partitions, so requests for one key take turns: the
 * lock is given back after the commit, and whoever has waited for it looks with a snapshot of its own, which a
 * function has for each of its statements under READ COMMITTED, and only there.
 *
 * A record that lasts for less than a partition would stay for far too long if it waited for the end of one.
 */
export const reserveFunction = `
CREATE OR REPLACE FUNCTION latchkey_reserve(
  text, text, text, text, text, integer, float8, float8, text, text, text, bytea, float8
) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $reserve$
DECLARE
  its_bucket timestamptz := latchkey_bucket(now() + $8 * interval '1 millisecond');
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'partitioned Latchkey tables need the isolation level read committed';
  END IF;
  IF $8 < extract(epoch FROM latchkey_partition_width()) * 1000
    OR to_regclass(latchkey_partition_name(its_bucket)) IS NULL
  THEN
    its_bucket := '-infinity';
  END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended($2, hashtextextended($1, 0)));
  IF EXISTS (SELECT FROM latchkey_records WHERE scope = $1 AND key = $2) THEN
    RETURN false;
  END IF;
  INSERT INTO latchkey_records (${listedRecord.columns}, bucket)
  SELECT ${listedRecord.values}, its_bucket;
  RETURN true;
END
$reserve$`;

/** As in the migration 0008_settling_in_place, on partitions: each call takes the turn of its key. */
export const reserveBatchFunction = `
CREATE OR REPLACE FUNCTION latchkey_reserve_batch(
  look boolean, scopes text[], keys text[], fingerprints text[], owners text[], kinds integer[],
  crashes text[], sessions integer[], leases float8[], retentions float8[], states text[], routes text[],
  reconciles float8[], heads text[], bodies bytea[]
) RETURNS TABLE (
  place integer, now float8, print text, lease float8, status integer, head text, body bytea, expires float8
)
LANGUAGE plpgsql VOLATILE ROWS 10
AS $batch$
#variable_conflict use_column
DECLARE
  moment CONSTANT timestamptz := date_trunc('milliseconds', now());
  kind integer;
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
  status := 0;
  FOR i IN 1..cardinality(keys) LOOP
    kind := kinds[i];
    IF latchkey_reserve(scopes[i], keys[i], fingerprints[i], crashes[kind], owners[i], sessions[kind], leases[kind],
      retentions[kind], states[kind], routes[kind], heads[i], bodies[i], reconciles[kind])
    THEN
      status := status + 1;
    END IF;
  END LOOP;
  RETURN NEXT;
  IF status < cardinality(keys) THEN
    RETURN QUERY SELECT * FROM latchkey_found(scopes, keys, moment);
  END IF;
END
$batch$`;

/** As `reserve`, on partitions. Parameters as in `newRecord`. */
export const reserveInPartitions = `
WITH found AS (${record}
),
attempt AS MATERIALIZED (
  SELECT latchkey_reserve($1, $2, $3, $4, $5, ${ownedHere("$6")}, $7, $8, $9, $10, $11, $12, $13) AS inserted
  WHERE NOT EXISTS (SELECT FROM found)
)
SELECT ${milliseconds(now)} AS now, coalesce((SELECT inserted FROM attempt), false) AS inserted, found.*
FROM (VALUES (1)) AS always LEFT JOIN found ON true`;

export const isPartitioned = `
SELECT EXISTS (
  SELECT FROM pg_partitioned_table WHERE partrelid = to_regclass('latchkey_records')
) AS partitioned`;

/** $1 a width of `partitionWidths` */
export const hasWidth = "SELECT latchkey_partition_width() = $1::text::interval AS same";

/**
 * Which partitions are missing, each with the statement that creates it. They reach a day and one partition ahead,
 * or as far as the records in DEFAULT show to be needed.
 */
export const missingPartitions = `
WITH need AS (
  SELECT max(expires_at) AS until FROM ${defaultPartition}
  WHERE (unusual IS NULL OR unusual = 'failed_retryable') AND resume_after IS NULL
    AND expires_at < now() + ${partitionsAheadMax} * latchkey_partition_width()
),
wanted AS (
  SELECT start, latchkey_partition_name(start) AS name
  FROM need, generate_series(
    latchkey_bucket(now()),
    least(
      greatest(now() + interval '1 day', need.until) + latchkey_partition_width(),
      now() + ${partitionsAheadMax} * latchkey_partition_width()),
    latchkey_partition_width()) AS start
)
SELECT format(
  'CREATE TABLE %I PARTITION OF latchkey_records FOR VALUES FROM (%L) TO (%L) WITH (fillfactor = 80)',
  name, start, start + latchkey_partition_width()) AS statement
FROM wanted WHERE to_regclass(name) IS NULL`;

/** The same, created at once. */
export const createMissingPartitions = `
DO $create$
DECLARE
  missing record;
BEGIN
  FOR missing IN ${missingPartitions} LOOP
    EXECUTE missing.statement;
  END LOOP;
END
$create$;`;

/** Partitions whose time is over, and how many records the statistics say they have. */
export const pastPartitions = `
SELECT name, bucket::text AS bucket, greatest(rows, 0)::float8 AS rows
FROM (
  SELECT c.relname AS name, c.reltuples AS rows,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''([^'']+)''\\)'))[1]::timestamptz AS bucket
  FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid
  WHERE inhparent = 'latchkey_records'::regclass
) AS partition
WHERE bucket + latchkey_partition_width() <= now()
ORDER BY bucket`;

/** Partitions that are none any more: everything in them has been moved or is over. */
export const detachedPartitions = `
SELECT c.relname AS name FROM pg_class AS c
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'latchkey_records'::regclass)
  AND c.relkind = 'r' AND NOT c.relispartition AND c.relname ~ '^latchkey_records_\\d{8}_\\d{6}$'`;

/** What must outlive its partition: what is not settled, waits to be finished, or is to be kept for longer. */
const leftovers = (partition: string) => `
  SELECT scope, key FROM ${partition} WHERE lapses_at > '-infinity'
  UNION ALL
  SELECT scope, key FROM ${partition} WHERE unusual = 'unknown' AND escalated_at IS NULL AND reconcile_after > '-infinity'
  UNION ALL
  SELECT scope, key FROM ${partition} WHERE escalated_at > '-infinity'
  UNION ALL
  SELECT scope, key FROM ${partition} WHERE resume_after > '-infinity'
  UNION ALL
  SELECT scope, key FROM ${partition}
  WHERE unusual = 'failed_retryable' AND resume_after IS NULL AND (expires_at > now() OR progress IS NOT NULL)
  UNION ALL
  SELECT scope, key FROM ${partition}
  WHERE unusual IS NULL AND state = 'completed' AND ${mayBeKept} AND ${expiry()} > now()`;

/** $1 at most */
export const countLeftovers = (partition: string) => `
SELECT count(*)::int AS leftovers FROM (${leftovers(partition)} LIMIT $1::int) AS found`;

/** Moves them to DEFAULT. $1 the bucket of the partition */
export const moveLeftovers = (partition: string) => `
UPDATE latchkey_records SET bucket = '-infinity'
WHERE bucket = $1::text::timestamptz AND (scope, key) IN (${leftovers(partition)})`;

/** One process at a time changes partitions. False: another one does. */
export const takePartitionTurn = `
SELECT pg_try_advisory_xact_lock(hashtextextended('latchkey partitions', 'latchkey_records'::regclass::oid::bigint)) AS mine`;
