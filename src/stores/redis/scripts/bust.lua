-- Takes a settled record's answer away, as src/core/bust.ts says.
--
-- Input:   KEYS[1]  the record
--          ARGV[5]  the attempt whose answer it is; empty: whichever · ARGV[6] by · ARGV[7] why
-- Output:  { "busted" } · { "nothing", state } · { "not-settled", state } · { "another-attempt", attempt } ·
--          { "unreadable", version }
--#include record
--#include writes

local key = KEYS[1]
local value = redis.call('GET', key)
if value and not readable(value) then return { 'unreadable', string.byte(value, 1) } end
local r = value and decode(value)
if not r or r.state == GONE then return { 'nothing', 'absent' } end
local from = STATE_NAMES[r.state]
if r.state == EXPIRED then return { 'nothing', from } end
if ARGV[5] ~= '' and tonumber(ARGV[5]) ~= r.fence then return { 'another-attempt', r.fence } end
if not isSettled(r) then return { 'not-settled', from } end

expire(r)
dropRequest(key, r)
put(key, r, 0, 0, 0)
wake(key, r)
audit(key, r, from, ARGV[6], ARGV[7])
gather(news, tagOf(key), 'b' .. redis.sha1hex(nameOf(key)))
flush()
return { 'busted' }
