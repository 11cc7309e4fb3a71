-- Ends leases, or learns that they were lost.
--
-- Input:   KEYS     the records, each one once; on a single server the first of them
--          ARGV[5]  the heads of the settlements: length of the key (0: it is in KEYS) · kind · fence · retentionMs or
--                   reconcileAfterMs · resumeAfterMs plus 1 (0: none) · length of the owner · status of the response · length
--                   of its head, or of the reason
--          ARGV[6]  for each: key · owner · the response's head, or the reason
--          ARGV[7]  and following: for each the response's body
-- Output:  the time, then for each: 0 and when it expires · 1 lost · 7 and the version of a record that cannot be read
--#include bucket

local SETTLEMENT = '>I4BI4I6I6I2I2I4'
local SETTLEMENT_BYTES = 29
-- Status and length of the head, which a response begins with.
local RESPONSE_FROM, RESPONSE_TO = 24, 29
local heads, texts = ARGV[5], ARGV[6]
-- What the bodies come behind. They are not cut out of anything, because every text in Lua costs by the byte.
local BODIES_AT = 6
local CALLS = #heads / SETTLEMENT_BYTES
local COMPLETE, SUSPEND = 0, 2

-- What a head says, and what all completions with the same head have in common. Most heads of a batch are the same.
local said = {}
local function sayingOf(head)
  local keyBytes, kind, fence, ms, resumeAfterMs, ownerBytes, _, textBytes = struct.unpack(SETTLEMENT, head)
  local expiresAt = now + ms
  local saying = {
    keyBytes = keyBytes, ownerBytes = ownerBytes, textBytes = textBytes,
    kind = kind, fence = fence, ms = ms, resumeAfterMs = resumeAfterMs,
    tail = kind == COMPLETE and sub(head, RESPONSE_FROM, RESPONSE_TO) or '',
    completed = string.char(VERSION, COMPLETED) .. struct.pack('>I6I6', expiresAt, now),
    goesAt = textOf(settledGoesAt(expiresAt, fence) + ahead), window = windowOf(expiresAt),
    reply = struct.pack('>BI6', 0, expiresAt),
  }
  said[head] = saying
  return saying
end

-- What the head of a record says of its lease. Records that were reserved together have the same.
local leases = {}
local function leaseOf(head)
  local _, state, expiresAt, _, _, _, _, watched, kept, fence, _, _, _, fingerprintBytes, ownerBytes =
    struct.unpack(HEAD, head)
  local lease = {
    state = state, expiresAt = expiresAt, fence = fence, isPlain = watched == 0 and kept == 0,
    ownerFrom = HEAD_BYTES + fingerprintBytes + 1, ownerTo = HEAD_BYTES + fingerprintBytes + ownerBytes,
  }
  leases[head] = lease
  return lease
end

local keys, sayings, textFroms = {}, {}, {}
local textAt = 1
for nth = 1, CALLS do
  local head = sub(heads, (nth - 1) * SETTLEMENT_BYTES + 1, nth * SETTLEMENT_BYTES)
  local saying = said[head] or sayingOf(head)
  local afterKey = textAt + saying.keyBytes
  keys[nth] = afterKey > textAt and sub(texts, textAt, afterKey - 1) or KEYS[nth]
  sayings[nth], textFroms[nth] = saying, afterKey
  textAt = afterKey + saying.ownerBytes + saying.textBytes
end

local values = redis.call('MGET', unpack(keys))

-- The lease of whoever speaks; nil if it is another's, or nobody's, or cannot be read.
local function heldBy(owner, value, saying)
  if string.byte(value, 1) ~= VERSION then return nil end
  local head = sub(value, 1, HEAD_BYTES)
  local lease = leases[head] or leaseOf(head)
  local isHeld = lease.fence == saying.fence and owner ~= '' and sub(value, lease.ownerFrom, lease.ownerTo) == owner
  return isHeld and lease or nil
end

-- As a rule what is held is completed, and nothing else has to be told or cleared away: only state, times and tail of the
-- record are other ones. Whatever else was said is left for later.
local replies, completed, left = { struct.pack('>I6', now) }, {}, {}
for nth = 1, CALLS do
  local value, saying, ownerFrom = values[nth], sayings[nth], textFroms[nth]
  local textFrom = ownerFrom + saying.ownerBytes
  local text, body = sub(texts, textFrom, textFrom + saying.textBytes - 1), ARGV[BODIES_AT + nth]
  local lease = value and heldBy(sub(texts, ownerFrom, textFrom - 1), value, saying)
  if lease and lease.state == IN_PROGRESS and lease.isPlain and saying.kind == COMPLETE and not IS_CLUSTER then
    completed[nth] = saying.completed .. sub(value, STATE_BYTES + 1) .. saying.tail .. text .. body
    replies[nth + 1] = saying.reply
  else
    left[#left + 1] = { nth, lease, saying.tail .. text .. body }
  end
end

local function writeCompleted()
  local drops, windows = {}, {}
  for nth, value in pairs(completed) do
    local key, saying = keys[nth], sayings[nth]
    local tag, name = tagOf(key), nameOf(key)
    local dropped, expiring = groupIn(drops, tag), groupIn(groupIn(windows, tag), saying.window)
    dropped[#dropped + 1], expiring[#expiring + 1] = name, name
    redis.call('SET', key, value, 'PXAT', saying.goesAt)
  end
  for tag, names in pairs(drops) do redis.call('ZREM', tag .. '@sweep', unpack(names)) end
  for tag, byWindow in pairs(windows) do
    for window, names in pairs(byWindow) do writeExpiry(tag, '@w', window, tag .. '@w' .. textOf(window), names) end
  end
end

-- What is below takes time even if none of it is used.
if #left == 0 then
  writeCompleted()
  return table.concat(replies)
end

--#include record
--#include writes

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
  return r.expiresAt
end

local function answer(key, value, saying, lease, tail)
  if value and not readable(value) then return struct.pack('>BB', 7, string.byte(value, 1)) end
  if not lease then return LOST end
  local kind, expiresAt = saying.kind, lease.expiresAt
  if lease.state == IN_PROGRESS then
    expiresAt = settle(key, decode(value), kind, saying.ms, saying.resumeAfterMs, tail)
  elseif lease.state ~= STATES[kind] then
    return LOST
  end
  -- The same lease may say the same thing twice: its first word may have been heard, and the answer lost.
  return struct.pack('>BI6', 0, expiresAt)
end

for _, call in ipairs(left) do
  local nth, lease, tail = unpack(call, 1, 3)
  replies[nth + 1] = answer(keys[nth], values[nth], sayings[nth], lease, tail)
end

writeCompleted()
flush()
return table.concat(replies)
