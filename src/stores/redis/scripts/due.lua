-- Acts on what is due in an index of a bucket. The record says whether it is: an index may be wrong, because a record was
-- lost or a write came without the other, and is put right then.
--
-- Input:   what bucket.lua is told; record.lua and writes.lua have to come before
-- Output:  eachDue, which calls act(key, record, when it was due in each index) for up to so many

local DUE_CHUNK = 200
-- What cannot be read or was wrong stands before what is due, and nobody else is served while a script looks past it.
local DUE_LOOKS_MAX = 2000

local function dueIn(suffix, sweepAt, resumeAt, unknownAt)
  if suffix == '@sweep' then return sweepAt end
  if suffix == '@resume' then return resumeAt end
  return unknownAt
end

-- Whether it was acted on.
local function actIfDue(tag, suffix, name, value, act)
  if not value then
    index(suffix, tag, name, 0)
    return false
  end
  if not readable(value) then return false end
  local r = decode(value)
  local dueAt = dueIn(suffix, dueTimes(r))
  if dueAt == 0 or dueAt > now then
    index(suffix, tag, name, dueAt)
    return false
  end
  act(tag .. name, r, dueTimes(r))
  return true
end

local function eachDue(tag, suffix, limit, act)
  local looks, left = 0, limit
  while left > 0 and looks < DUE_LOOKS_MAX do
    local count = math.min(left, DUE_CHUNK)
    local names = redis.call('ZRANGEBYSCORE', tag .. suffix, '-inf', now, 'LIMIT', looks, count)
    if #names == 0 then return end
    local keys = {}
    for nth, name in ipairs(names) do keys[nth] = tag .. name end
    local values = redis.call('MGET', unpack(keys))
    for nth, name in ipairs(names) do
      if actIfDue(tag, suffix, name, values[nth], act) then left = left - 1 end
    end
    looks = looks + #names
  end
end
