-- Ends leases, or learns that they were lost.
--
-- Input:   KEYS     the records, each one once
--          ARGV[5]  the settlements in the order of KEYS: kind · fence · retentionMs or reconcileAfterMs · resumeAfterMs
--                   plus 1 (0: none) · lengths of owner and tail; then these: the tail is the response, or the reason
-- Output:  the time, then for each: 0 and when it expires · 1 lost · 7 and the version of a record that cannot be read
--#include record
--#include writes

local SETTLEMENT = '>BI4I6I6I2I4'
local SETTLEMENT_BYTES = 23
local COMPLETE, SUSPEND = 0, 2
-- The state that each kind of settlement leads to: complete, release, suspend.
local STATES = { [0] = COMPLETED, FAILED, UNKNOWN }
local LOST = '\1'

local function settle(key, r, kind, ms, resumeAfterMs, tail)
  local leaseUntil = r.at
  if kind == SUSPEND then
    suspend(r, tail, now + ms)
  else
    r.state, r.tail, r.expiresAt, r.count = STATES[kind], tail, now + ms, 0
    if kind == COMPLETE then
      r.at = now
      dropRequest(key, r)
    else
      r.at = resumeAfterMs > 0 and now + resumeAfterMs - 1 or 0
    end
  end
  put(key, r, leaseUntil, 0, 0)
  wake(key, r)
  if kind ~= COMPLETE then audit(key, r, 'in_progress', r.owner, tail) end
end

local values = redis.call('MGET', unpack(KEYS))
local replies = { struct.pack('>I6', now) }
local calls, position = ARGV[5], 1
for nth = 1, #KEYS do
  local kind, fence, ms, resumeAfterMs, ownerBytes, tailBytes = struct.unpack(SETTLEMENT, calls, position)
  local ownerFrom = position + SETTLEMENT_BYTES
  local tailFrom = ownerFrom + ownerBytes
  position = tailFrom + tailBytes
  local value = values[nth]
  if not value then
    replies[nth + 1] = LOST
  elseif not readable(value) then
    replies[nth + 1] = struct.pack('>BB', 7, string.byte(value, 1))
  else
    local r = decode(value)
    if r.fence ~= fence or r.owner == '' or r.owner ~= string.sub(calls, ownerFrom, tailFrom - 1) then
      replies[nth + 1] = LOST
    elseif r.state == IN_PROGRESS then
      settle(KEYS[nth], r, kind, ms, resumeAfterMs, string.sub(calls, tailFrom, position - 1))
      replies[nth + 1] = struct.pack('>BI6', 0, r.expiresAt)
    elseif r.state == STATES[kind] then
      -- The same lease may say the same thing twice: its first word may have been heard, and the answer lost.
      replies[nth + 1] = struct.pack('>BI6', 0, r.expiresAt)
    else
      replies[nth + 1] = LOST
    end
  end
end

flush()
return table.concat(replies)
