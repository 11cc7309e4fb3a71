-- For looking through records: the latest first, and from any place on. Scope and key are in it so that no two records share a
-- place, and so that a key, or the records of a tenant, are told by the index alone.
--
-- Every request pays for it with two insertions, since settling makes a new version of the row in any case. Both go to the
-- end of the index, and the old version's entry makes room for others before the page is split. That was measured to cost a
-- reservation and its settlement 6 % of their CPU time. An index by key, whose insertions are all over the place, cost a quarter
-- more: a key is looked for in one scope after the other instead, and in this index where there are too many.
CREATE INDEX latchkey_records_created ON latchkey_records (created_at, scope, key);

-- What a request is for a moment, or for the rest of its time, is found without it: the first by its lease, the
-- second in the index above. So the happy path does not pay for this one.
CREATE INDEX latchkey_records_unusual ON latchkey_records (state, created_at, scope, key)
  WHERE state IN ('pending', 'failed_retryable', 'unknown', 'expired');
