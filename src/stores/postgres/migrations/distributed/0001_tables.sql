-- The tables for engines that speak the Postgres protocol and are not Postgres. Each statement stands for itself and may
-- be carried out again: some engines allow one such statement per transaction. No function, trigger, sequence, partial
-- index, collation or storage setting, because one engine or another has none.
--
-- int4, because an integer has eight bytes in CockroachDB, and drivers hand those out as text.
--
-- Times are milliseconds since 1970 as numbers: what is done with them in a statement is arithmetic, which every engine
-- lets pass beside a column.

CREATE TABLE IF NOT EXISTS latchkey_dist_records (
  scope           text NOT NULL,
  key             text NOT NULL,
  -- Another one after every change. Whoever found the record with it may change it, unless somebody else was faster.
  revision        text NOT NULL,
  state           text NOT NULL,
  fingerprint     text NOT NULL,
  fence           int4 NOT NULL,
  on_crash        text NOT NULL,
  created_at      double precision NOT NULL,
  expires_at      double precision NOT NULL,
  owner           text,
  lease_until     double precision,
  route           text,
  progress        text,
  request_head    text,
  request_body    bytea,
  resume_after    double precision,
  claims          int4 NOT NULL,
  reconcile_ms    double precision NOT NULL,
  reconcile_after double precision,
  escalated_at    double precision,
  reason          text,
  completed_at    double precision,
  response_status int4,
  response_head   text,
  response_body   bytea,
  PRIMARY KEY (scope, key)
);

-- For the sweeper.
CREATE INDEX IF NOT EXISTS latchkey_dist_records_lease ON latchkey_dist_records (lease_until);

-- For the reaper, and for what has waited for too long.
CREATE INDEX IF NOT EXISTS latchkey_dist_records_expiry ON latchkey_dist_records (state, expires_at);

-- For the completer.
CREATE INDEX IF NOT EXISTS latchkey_dist_records_resume ON latchkey_dist_records (resume_after);

-- For the reconciler.
CREATE INDEX IF NOT EXISTS latchkey_dist_records_reconcile ON latchkey_dist_records (reconcile_after);

CREATE TABLE IF NOT EXISTS latchkey_dist_audit (
  scope      text NOT NULL,
  key        text NOT NULL,
  -- The time in microseconds, and something random: there is no sequence that would not be a bottleneck.
  id         text NOT NULL,
  at         double precision NOT NULL,
  fence      int4 NOT NULL,
  from_state text NOT NULL,
  to_state   text NOT NULL,
  actor      text NOT NULL,
  reason     text NOT NULL,
  PRIMARY KEY (scope, key, id)
);

CREATE INDEX IF NOT EXISTS latchkey_dist_audit_id ON latchkey_dist_audit (id);

CREATE TABLE IF NOT EXISTS latchkey_dist_outbox (
  -- The time in microseconds, the place among those of one phase, and something random.
  id             text PRIMARY KEY,
  state          text NOT NULL,
  lane           int4 NOT NULL,
  topic          text NOT NULL,
  partition_key  text,
  payload        text NOT NULL,
  message_key    text NOT NULL,
  correlation_id text NOT NULL,
  attempts       int4 NOT NULL,
  due_at         double precision NOT NULL,
  created_at     double precision NOT NULL,
  delivered_at   double precision,
  reference      text,
  died_at        double precision,
  error          text
);

-- For relays: what waits in a lane, and what is ahead of it in its partition.
CREATE INDEX IF NOT EXISTS latchkey_dist_outbox_due ON latchkey_dist_outbox (state, lane, due_at);
CREATE INDEX IF NOT EXISTS latchkey_dist_outbox_partition ON latchkey_dist_outbox (state, lane, partition_key, id);

CREATE TABLE IF NOT EXISTS latchkey_dist_lanes (
  lane          int4 PRIMARY KEY,
  owner         text,
  claimed_until double precision
);
