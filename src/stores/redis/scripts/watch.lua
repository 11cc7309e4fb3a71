-- From now on everybody who listens is told when a record changes.
--
-- Input:   KEYS[1]  the record
-- Output:  1 · 0: it is not there
--#include record

local WATCHED_AT = 4 -- Behind version, state, onCrash and after.
local value = redis.call('GETRANGE', KEYS[1], 0, HEAD_BYTES - 1)
if value == '' or not readable(value) then return 0 end
if string.byte(value, WATCHED_AT + 1) == 0 then redis.call('SETRANGE', KEYS[1], WATCHED_AT, '\1') end
return 1
