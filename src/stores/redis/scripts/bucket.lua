-- What the keys of a bucket are called, and when they go by themselves.
--
-- Input:   ARGV[2]  how many bytes of a record's key are its tag; every other key of its slot begins with the same
--          ARGV[3]  PUBLISH, or SPUBLISH in a cluster
--          ARGV[4]  about how many entries the audit trail of a bucket has
--          KEYS     in a cluster, behind the others, the keys that are named below with an @ and no minute: so that a node
--                   that has handed one of them on, while its slot moves, refuses before anything is written
-- Output:  the settings by name · RECORDS, how many of KEYS come before those · names of keys, and when these go
--
-- Keys of a bucket: <tag><name> a record · <tag>q<name> its request · @sweep, @resume, @unknown what workers look
-- through, by when it is due · @windows, @softs the minutes in which records expire, @w<minute>, @s<minute> which ones
-- · @audit · <tag>f<digest> the fence of a record that was forgotten with its tenant · @forgotten as long as there may be
-- one, on a single server of whichever bucket · <tag>n<name> a note · the channel !
--#include clock
--#include layout
local TAG_BYTES, PUBLISH, AUDIT_MAX = tonumber(ARGV[2]), ARGV[3], ARGV[4]
local IS_CLUSTER = PUBLISH == 'SPUBLISH'
local RECORDS = #KEYS - (IS_CLUSTER and 6 or 0)

-- How long a settled record stays past its retention: as `expired`, so that its fence goes on, and for the reaper.
local GRACE_MS = 3600000
-- How long a fence of 2 or more is remembered past the retention, and a soft-expired record kept.
local MEMORY_MS = 30 * 86400000
local WINDOW_MS = 60000

-- A number as text. Most of those in a batch are the same, and writing one down takes as long as a command.
local numerals = {}
local function textOf(number)
  local text = numerals[number]
  if text == nil then
    text = string.format('%.0f', number)
    numerals[number] = text
  end
  return text
end

local function tagOf(key)
  return sub(key, 1, TAG_BYTES)
end

local function nameOf(key)
  return sub(key, TAG_BYTES + 1)
end

local function forgottenKeyOf(key)
  local tag = tagOf(key)
  return (IS_CLUSTER and tag or string.match(tag, '^(.*):')) .. '@forgotten'
end

local function settledGoesAt(expiresAt, fence)
  return expiresAt + (fence > 1 and MEMORY_MS or GRACE_MS)
end

local function windowOf(expiresAt)
  return math.floor(expiresAt / WINDOW_MS)
end

local function groupIn(groups, key)
  local group = groups[key]
  if group == nil then
    group = {}
    groups[key] = group
  end
  return group
end

local function listGoesAt(window, isSoft)
  return math.max((window + 1) * WINDOW_MS, now) + (isSoft and MEMORY_MS or GRACE_MS) + ahead
end

local function writeExpiry(tag, prefix, window, list, names)
  if redis.call('RPUSH', list, unpack(names)) > #names then return end
  -- A new minute. Its list goes by itself after its records, and so do minutes that nobody has reaped.
  local isSoft = prefix == '@s'
  local minutes = tag .. (isSoft and '@softs' or '@windows')
  redis.call('PEXPIREAT', list, listGoesAt(window, isSoft))
  redis.call('ZREMRANGEBYSCORE', minutes, '-inf', now - (isSoft and MEMORY_MS or GRACE_MS) - WINDOW_MS)
  redis.call('ZADD', minutes, window * WINDOW_MS, textOf(window))
end
