-- Removes, or marks, settled records past their retention, minute by minute. Redis removes them by itself an hour later;
-- this is for those who want it sooner, or want to keep what has expired.
--
-- Input:   KEYS[1]  the tag of a bucket
--          ARGV[5]  limit · ARGV[6] delete or soft
-- Output:  how many were deleted, and marked
--#include record
--#include writes

local tag, isSoft = KEYS[1], ARGV[6] == 'soft'
local left = tonumber(ARGV[5])
local deleted, marked = 0, 0
-- A minute that is under way may hold many that are not due yet: it is not looked through for ever.
local LOOKS_MAX = 2000
local looks = 0
local CHUNK = 100

-- A record may be listed twice, because it was settled twice within a minute.
local seen = {}

-- Whether the record is done with, as far as this list is concerned.
local function reap(key, value, window)
  if seen[key] or not value or not readable(value) then return true end
  local r = decode(value)
  if r.state == GONE or not isSettled(r) or math.floor(r.expiresAt / WINDOW_MS) ~= window then return true end
  if r.expiresAt > now then return false end
  seen[key] = true
  dropRequest(key, r)
  if isSoft then
    if r.state ~= EXPIRED then
      marked = marked + 1
      left = left - 1
    end
    expire(r)
    put(key, r, 0, 0, 0, true)
    return true
  end
  if r.fence > 1 then
    -- Its fence goes on, whatever else is forgotten.
    expire(r)
    r.state, r.fingerprint, r.route = GONE, '', ''
    put(key, r, 0, 0, 0)
  else
    later('DEL', key)
  end
  deleted = deleted + 1
  left = left - 1
  return true
end

local function reapWindow(list, window, isSoftList)
  local unseen = redis.call('LLEN', list)
  while unseen > 0 and left > 0 and looks < LOOKS_MAX do
    local count = math.min(unseen, left, CHUNK)
    local names = redis.call('LRANGE', list, 0, count - 1)
    redis.call('LTRIM', list, count, -1)
    local keys, notYet = {}, {}
    for nth, name in ipairs(names) do keys[nth] = tag .. name end
    local values = redis.call('MGET', unpack(keys))
    for nth, key in ipairs(keys) do
      if not reap(key, values[nth], window) then notYet[#notYet + 1] = names[nth] end
    end
    unseen = unseen - count
    looks = looks + count
    if #notYet > 0 then
      redis.call('RPUSH', list, unpack(notYet))
      redis.call('PEXPIREAT', list, listGoesAt(window, isSoftList))
    end
  end
end

local function reapAll(minutes, prefix, isSoftList)
  for _, window in ipairs(redis.call('ZRANGEBYSCORE', tag .. minutes, '-inf', now)) do
    if left == 0 or looks >= LOOKS_MAX then return end
    local list = tag .. prefix .. window
    reapWindow(list, tonumber(window), isSoftList)
    if redis.call('EXISTS', list) == 0 then redis.call('ZREM', tag .. minutes, window) end
  end
end

reapAll('@windows', '@w', false)
if not isSoft then reapAll('@softs', '@s', true) end
flush()
return { deleted, marked }
