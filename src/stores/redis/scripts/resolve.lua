-- Settles an unknown outcome, or hands it to an operator.
--
-- Input:   KEYS[1]  the record
--          ARGV[5]  fence · ARGV[6] complete, release or escalate · ARGV[7] retentionMs · ARGV[8] resumeAfterMs or empty
--          ARGV[9]  the response, or the reason · ARGV[10] the progress · ARGV[11] by · ARGV[12] why, for the trail
-- Output:  1 and when it expires · 0 and what state it is in instead · 7 and the version of a record that cannot be read
--#include record
--#include writes

local key = KEYS[1]
local value = redis.call('GET', key)
if value and not readable(value) then return { 7, string.byte(value, 1) } end
local r = value and decode(value)
if not r or r.state ~= UNKNOWN or r.fence ~= tonumber(ARGV[5]) then
  return { 0, r and STATE_NAMES[r.state] or 'absent' }
end

local sweepAt, resumeAt, unknownAt = dueTimes(r)
local kind = ARGV[6]
r.owner, r.tail = '', ARGV[9]
if kind == 'escalate' then
  r.escalatedAt = now
else
  r.expiresAt, r.escalatedAt, r.count = now + ARGV[7], 0, 0
  if kind == 'complete' then
    r.state, r.at = COMPLETED, now
    dropRequest(key, r)
  else
    -- A worker can go on only with what was kept; anything else waits for its client.
    r.state, r.progress = FAILED, ARGV[10]
    r.at = r.kept == 1 and ARGV[8] ~= '' and now + ARGV[8] or 0
  end
end
put(key, r, sweepAt, resumeAt, unknownAt)
wake(key, r)
audit(key, r, 'unknown', ARGV[11], ARGV[12])
flush()
return { 1, r.expiresAt }
