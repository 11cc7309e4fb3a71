-- For looking through records: the latest first, and from any place on. Scope and key are in it so that no two records share a
-- place, and so that a key, or the records of a tenant, are told by the index alone. A record is added at its end when
-- it is reserved, and settling does not touch it. An index by key, whose insertions are all over the place, was measured to
-- cost a third of a request: a key is looked for in one scope after the other instead, and in this index where there are too many.
CREATE INDEX latchkey_records_created ON latchkey_records (created_at, scope, key);

-- What a request is for a moment, or for the rest of its time, is found without it: the first by its lease, the
-- second in the index above. So the happy path does not pay for this one.
CREATE INDEX latchkey_records_unusual ON latchkey_records (state, created_at, scope, key)
  WHERE state IN ('pending', 'failed_retryable', 'unknown', 'expired');
