-- For looking through records.
--
-- Indexes are made while nobody can write: a few seconds for a million records. Where that is too long, make them beforehand
-- with CREATE INDEX CONCURRENTLY, under these names; then they are found here.

-- The latest first, and from any place on. Scope and key are in it so that no two records share a place, and so that a key, or
-- the records of a tenant, are told by the index alone.
--
-- Every request pays for it with two insertions, since settling makes a new version of the row in any case. Both go to the
-- end of the index, and the entry of the old version makes room before a page is split. That was measured to cost a
-- reservation and its settlement 6 % of their CPU time, as much as an index of the time alone; (state, created_at) cost
-- 12 %. An index by key, whose insertions are all over the place, cost 26 % more: a key is looked for in one scope after
-- the other instead, and in this index where there are too many.
CREATE INDEX IF NOT EXISTS latchkey_records_created ON latchkey_records (created_at, scope, key);

-- By state. What a request is for a moment, or for the rest of its time, is found without it: the first by its lease, the
-- second in the index above. So the happy path does not pay for this one.
CREATE INDEX IF NOT EXISTS latchkey_records_unusual ON latchkey_records (state, created_at, scope, key)
  WHERE state IN ('pending', 'failed_retryable', 'unknown', 'expired');
