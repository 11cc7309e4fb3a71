-- Looks without touching.
--
-- Input:   KEYS[1]  a record
-- Output:  the time, and the record or nothing
--#include clock

return { now, redis.call('GET', KEYS[1]) }
