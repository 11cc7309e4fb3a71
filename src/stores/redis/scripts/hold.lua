-- Changes records while their leases are held: when these end, or how far their executions have come.
--
-- Input:   KEYS     the records
--          ARGV[5]  how long the leases last from now, in milliseconds; empty: as long as before
--          ARGV[6]  for each: fence · length of owner; then the owner
--          ARGV[7]  what a crash means from now on; empty: what it meant
--          ARGV[8]  the progress, if ARGV[7] is there
-- Output:  for each: 1 held · 0 lost
--#include record
--#include writes

local values = redis.call('MGET', unpack(KEYS))
local replies = {}
local position = 1
for nth, key in ipairs(KEYS) do
  local fence, owner
  fence, owner, position = struct.unpack('>I4I2c0', ARGV[6], position)
  local value = values[nth]
  local r = value and readable(value) and decode(value)
  if r and r.state == IN_PROGRESS and r.fence == fence and r.owner == owner then
    local leaseUntil = r.at
    if ARGV[5] ~= '' then r.at = now + ARGV[5] end
    if ARGV[7] ~= '' then r.onCrash, r.progress = tonumber(ARGV[7]), ARGV[8] end
    put(key, r, leaseUntil, 0, 0)
    replies[nth] = 1
  else
    replies[nth] = 0
  end
end

flush()
return replies
