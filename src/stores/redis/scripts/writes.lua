-- What a script writes is gathered, and written at its end: what is refused (no memory left, a record that cannot be
-- read) is refused before anything has happened, and what belongs together travels in one command.
--
-- Input:   what bucket.lua is told; record.lua has to come before
-- Output:  put, wake, audit and others, which gather · flush, which a script calls once, at its end: nothing is written
--          without it
--#include bucket
local sets, expiring, others, news, trail = {}, {}, {}, {}, {}
-- By tag.
local indexes = {
  ['@sweep'] = { adds = {}, drops = {} },
  ['@resume'] = { adds = {}, drops = {} },
  ['@unknown'] = { adds = {}, drops = {} },
}
local expiries = { ['@w'] = {}, ['@s'] = {} }

local function gather(groups, key, a, b)
  local group = groupIn(groups, key)
  group[#group + 1] = a
  if b ~= nil then group[#group + 1] = b end
end

local function requestKeyOf(key)
  return tagOf(key) .. 'q' .. nameOf(key)
end

local function fenceKeyOf(key)
  return tagOf(key) .. 'f' .. redis.sha1hex(nameOf(key))
end

local function later(...)
  others[#others + 1] = { ... }
end

-- What an operator has to settle is listed with what is asked about, so that it can be counted, and never due.
local NEVER = 2 ^ 52

-- When the sweeper has to look at a record, a worker may finish it, or reconciliation may ask; 0: it is not listed.
local function dueTimes(r)
  local state = r.state
  if state == IN_PROGRESS then return r.at, 0, 0 end
  if state == PENDING then return r.expiresAt, r.kept * r.at, 0 end
  if state == UNKNOWN then return 0, 0, r.escalatedAt == 0 and r.at or NEVER end
  if state == FAILED and r.at ~= 0 then return 0, r.kept * r.at, 0 end
  if state == FAILED and r.progress ~= '' then return r.expiresAt, 0, 0 end
  return 0, 0, 0
end

local function index(suffix, tag, name, dueAt)
  local changes = indexes[suffix]
  if dueAt == 0 then gather(changes.drops, tag, name) else gather(changes.adds, tag, textOf(dueAt), name) end
end

-- Notes in which minute a record expires, for the reaper.
local function noteExpiry(tag, name, expiresAt, isSoft)
  gather(groupIn(expiries[isSoft and '@s' or '@w'], tag), windowOf(expiresAt), name)
end

-- What never goes by itself.
local function setForGood(key, value)
  local nth = #sets
  sets[nth + 1], sets[nth + 2] = key, value
end

-- What goes by itself at some time.
local function setUntil(key, value, goesAt)
  local nth = #expiring
  expiring[nth + 1], expiring[nth + 2], expiring[nth + 3] = key, value, textOf(goesAt + ahead)
end

-- Writes a record down. The times are what dueTimes said of it before. What is settled goes by itself when nobody can
-- need it any more; anything else never does.
local function put(key, r, sweepAt, resumeAt, unknownAt, isSoft)
  local tag, name = tagOf(key), nameOf(key)
  local sweepNext, resumeNext, unknownNext = dueTimes(r)
  if sweepAt ~= sweepNext then index('@sweep', tag, name, sweepNext) end
  if resumeAt ~= resumeNext then index('@resume', tag, name, resumeNext) end
  if unknownAt ~= unknownNext then index('@unknown', tag, name, unknownNext) end
  if isSettled(r) then
    local goesAt = isSoft and math.max(r.expiresAt, now) + MEMORY_MS or settledGoesAt(r.expiresAt, r.fence)
    setUntil(key, encode(r), goesAt)
    if r.kept == 1 then later('PEXPIREAT', requestKeyOf(key), goesAt + ahead) end
    if r.state ~= GONE then noteExpiry(tag, name, r.expiresAt, isSoft) end
  else
    setForGood(key, encode(r))
    if r.kept == 1 then later('PERSIST', requestKeyOf(key)) end
  end
end

-- Tells those who wait for a record, if there are any.
local function wake(key, r)
  if r.watched == 1 then gather(news, tagOf(key), 'w' .. redis.sha1hex(nameOf(key))) end
end

-- A request is gone when its outcome is known, or when another one has come in its place.
local function dropRequest(key, r)
  if r.kept == 1 then later('DEL', requestKeyOf(key)) end
  r.kept = 0
end

local function audit(key, r, from, by, reason)
  trail[#trail + 1] = { tagOf(key) .. '@audit', nameOf(key), r.fence, from .. '>' .. STATE_NAMES[r.state], by, reason }
end

local function eachExpiry(act)
  for prefix, byTag in pairs(expiries) do
    for tag, byWindow in pairs(byTag) do
      for window, names in pairs(byWindow) do act(tag, prefix, window, tag .. prefix .. textOf(window), names) end
    end
  end
end

-- Entries are numbered by the microsecond, so that those of several buckets can be put in order. Where a clock has gone
-- back, they follow the latest.
local function writeTrail()
  local micro = string.format('%.0f', ARGV[1] == '' and seconds * 1000000 + micros or now * 1000)
  for nth, entry in ipairs(trail) do
    local stream, name, fence, change, by, reason = unpack(entry)
    local fields = { 'n', name, 'f', fence, 'c', change, 'b', by, 'r', reason, 't', now }
    local written = redis.pcall('XADD', stream, 'MAXLEN', '~', AUDIT_MAX, micro .. '-' .. nth, unpack(fields))
    if type(written) == 'table' and written.err then
      local latest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1][1]
      local time, sequence = string.match(latest, '^(%d+)-(%d+)$')
      local following = time .. '-' .. string.format('%.0f', sequence + 1)
      redis.call('XADD', stream, 'MAXLEN', '~', AUDIT_MAX, following, unpack(fields))
    end
  end
end

-- In a cluster a node refuses to look at a key that it does not have while its slot moves. What has not been read and is
-- not among KEYS is looked at before anything is written, so that a script is refused as a whole, and not in the middle.
local function probe()
  for _, command in ipairs(others) do redis.call('EXISTS', command[2]) end
  eachExpiry(function(_, _, _, list) redis.call('EXISTS', list) end)
end

-- Commands that may be refused for want of memory come first.
local function flush()
  if IS_CLUSTER then probe() end
  if #sets > 0 then redis.call('MSET', unpack(sets)) end
  for nth = 1, #expiring, 3 do redis.call('SET', expiring[nth], expiring[nth + 1], 'PXAT', expiring[nth + 2]) end
  for _, command in ipairs(others) do redis.call(unpack(command)) end
  for suffix, changes in pairs(indexes) do
    for tag, members in pairs(changes.adds) do redis.call('ZADD', tag .. suffix, unpack(members)) end
    for tag, members in pairs(changes.drops) do redis.call('ZREM', tag .. suffix, unpack(members)) end
  end
  eachExpiry(writeExpiry)
  if #trail > 0 then writeTrail() end
  for tag, messages in pairs(news) do
    for _, message in ipairs(messages) do
      -- Whoever waits also polls, and an older cluster has no sharded channels; but it is an error if those who have kept
      -- an answer cannot be told that it is gone.
      local publish = not IS_CLUSTER and sub(message, 1, 1) ~= 'w' and redis.call or redis.pcall
      publish(PUBLISH, tag .. '!', message)
    end
  end
end
