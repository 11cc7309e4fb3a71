-- For looking through records: the latest first, and from any place on. Each reservation pays for one more index.
CREATE INDEX IF NOT EXISTS latchkey_dist_records_created ON latchkey_dist_records (created_at, scope, key);
