-- Looks without touching.
--
-- Input:   KEYS  records or notes
-- Output:  the time, then each of them or nothing
--#include clock

local reply = redis.call('MGET', unpack(KEYS))
table.insert(reply, 1, now)
return reply
