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

-- The outcome is known, and nothing else has to be told or cleared away: only state, times and tail are other ones.
local function complete(key, value, fence, expiresAt, tail)
  local name, tag = nameOf(key), tagOf(key)
  local rest = sub(value, STATE_BYTES + 1)
  local times = struct.pack('>I6I6', expiresAt, now)
  setUntil(key, string.char(VERSION, COMPLETED) .. times .. rest .. tail, settledGoesAt(expiresAt, fence))
  index('@sweep', tag, name, 0)
  noteExpiry(tag, name, expiresAt, false)
end

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
  return r.expiresAt
end

local function answer(key, value, kind, fence, ms, resumeAfterMs, owner, tail)
  local version, state, expiresAt, _, _, _, _, watched, kept, found, _, _, _, fingerprintBytes, ownerBytes =
    struct.unpack(HEAD, value)
  if version ~= VERSION then return struct.pack('>BB', 7, version) end
  local ownerFrom = HEAD_BYTES + fingerprintBytes
  if found ~= fence or owner == '' or sub(value, ownerFrom + 1, ownerFrom + ownerBytes) ~= owner then return LOST end
  if state == IN_PROGRESS then
    if kind == COMPLETE and watched == 0 and kept == 0 then
      expiresAt = now + ms
      complete(key, value, fence, expiresAt, tail)
    else
      expiresAt = settle(key, decode(value), kind, ms, resumeAfterMs, tail)
    end
  elseif state ~= STATES[kind] then
    return LOST
  end
  -- The same lease may say the same thing twice: its first word may have been heard, and the answer lost.
  return struct.pack('>BI6', 0, expiresAt)
end

local values = redis.call('MGET', unpack(KEYS, 1, RECORDS))
local replies = { struct.pack('>I6', now) }
local calls, position = ARGV[5], 1
for nth = 1, RECORDS do
  local kind, fence, ms, resumeAfterMs, ownerBytes, tailBytes = struct.unpack(SETTLEMENT, calls, position)
  local ownerFrom = position + SETTLEMENT_BYTES
  local tailFrom = ownerFrom + ownerBytes
  position = tailFrom + tailBytes
  local value = values[nth]
  local owner, tail = sub(calls, ownerFrom, tailFrom - 1), sub(calls, tailFrom, position - 1)
  replies[nth + 1] = value and answer(KEYS[nth], value, kind, fence, ms, resumeAfterMs, owner, tail) or LOST
end

flush()
return table.concat(replies)
