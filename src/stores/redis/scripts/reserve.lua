-- Answers arriving requests, as src/core/decide.ts does.
--
-- Input:   KEYS     the records, each one once; on a single server the first of them
--          ARGV[5]  the time after which nobody waits for these answers any more; empty: not known
--          ARGV[6]  the reasons that an audit trail gives: taken over, retried, crashed; each after its length
--          ARGV[7]  the heads of the requests: length of the key (0: it is in KEYS) · mode · leaseMs · retentionMs · length of
--                   the kept request · what layout.lua has between the times and the texts of a first attempt
--          ARGV[8]  for each: key · fingerprint · owner · route
--          ARGV[9]  for each: the kept request
-- Output:  the time, then one answer after the other: a code, and what belongs to it
--#include bucket

local REQUEST = '>I4BI6I6I4'
local REQUEST_BYTES, HEAD_OF_CALL_BYTES = 21, 55
-- Where the lengths of fingerprint, owner and route are.
local LENGTHS, LENGTHS_AT = '>I2I2I2', 46
local heads, texts, requests = ARGV[7], ARGV[8], ARGV[9]
local CALLS = #heads / HEAD_OF_CALL_BYTES
local EXECUTE, ACCEPT, CLAIM = 0, 1, 2

-- Whoever asked has given up: what would be granted now would be nobody's.
if ARGV[5] ~= '' and now > tonumber(ARGV[5]) then
  return struct.pack('>I6', now) .. string.rep('\8', CALLS)
end

-- What a head says, and what all first attempts with the same head have in common. Most heads of a batch are the same.
local kinds = {}
local function kindOf(head)
  local keyBytes, mode, leaseMs, retentionMs, requestBytes = struct.unpack(REQUEST, head)
  local fingerprintBytes, ownerBytes, routeBytes = struct.unpack(LENGTHS, head, LENGTHS_AT)
  local rest = sub(head, REQUEST_BYTES + 1)
  local times = struct.pack('>I6I6I6', now + retentionMs, now + leaseMs, now)
  local kind = {
    keyBytes = keyBytes, textBytes = fingerprintBytes + ownerBytes + routeBytes, requestBytes = requestBytes,
    mode = mode, leaseMs = leaseMs, retentionMs = retentionMs,
    isPlain = mode == EXECUTE and requestBytes == 0, leaseUntil = textOf(now + leaseMs),
    draft = string.rep('\0', TIMES_BYTES) .. rest,
    first = string.char(VERSION, IN_PROGRESS) .. times .. rest,
  }
  kinds[head] = kind
  return kind
end

local keys, asks, askedTexts = {}, {}, {}
local isPlain = not IS_CLUSTER
local textAt = 1
for nth = 1, CALLS do
  local head = sub(heads, (nth - 1) * HEAD_OF_CALL_BYTES + 1, nth * HEAD_OF_CALL_BYTES)
  local kind = kinds[head] or kindOf(head)
  local afterKey = textAt + kind.keyBytes
  keys[nth] = afterKey > textAt and sub(texts, textAt, afterKey - 1) or KEYS[nth]
  textAt = afterKey + kind.textBytes
  isPlain = isPlain and kind.isPlain
  asks[nth], askedTexts[nth] = kind, sub(texts, afterKey, textAt - 1)
end

-- A first attempt at a key that nobody has used: when it began, and nothing else.
local FIRST_REPLY = struct.pack('>BBI4I6I4', 0, 0, 1, now, 0)

-- As a rule nobody has used any of these keys, and nothing else has to be known: either all of them are taken here, or
-- none. What is below costs more than this, even if none of it is needed. Where the first one has been used, so have
-- others as a rule, and it is not tried. Not in a cluster: there a key that is missing while its slot moves would be
-- asked for in vain.
if isPlain and redis.call('EXISTS', forgottenKeyOf(keys[1]), keys[1]) == 0 then
  local sets, dues = {}, {}
  for nth = 1, CALLS do
    local key, kind = keys[nth], asks[nth]
    local due = groupIn(dues, tagOf(key))
    local at = #due
    due[at + 1], due[at + 2] = kind.leaseUntil, nameOf(key)
    sets[2 * nth - 1], sets[2 * nth] = key, kind.first .. askedTexts[nth]
  end
  if redis.call('MSETNX', unpack(sets)) == 1 then
    for tag, due in pairs(dues) do redis.call('ZADD', tag .. '@sweep', unpack(due)) end
    return struct.pack('>I6', now) .. string.rep(FIRST_REPLY, CALLS)
  end
end

--#include record
--#include writes

local takenOver, retried, crashed = struct.unpack('>I2c0I2c0I2c0', ARGV[6])

local function replyExecute(r)
  return struct.pack('>BBI4I6I4', 0, r.after, r.fence, r.createdAt, #r.progress) .. r.progress
end
local function replyReplay(r)
  return struct.pack('>BI6I6I4', 1, r.expiresAt, r.expiresAt - now, #r.tail) .. r.tail
end
local function replyUnknown(retryAfterMs, discovered)
  return struct.pack('>BI6B', 6, retryAfterMs, discovered)
end
local PENDING_REPLY, ABSENT_REPLY, MISMATCH_REPLY, ALONE_REPLY = '\3', '\4', '\5', '\9'

-- The request that is being answered.
local key, kind, text, mode, leaseMs, retentionMs, request, asked

-- A first attempt at a key that nobody has used.
local function takeFirst()
  setForGood(key, kind.first .. text)
  index('@sweep', tagOf(key), nameOf(key), now + leaseMs)
  if request ~= '' then later('SET', requestKeyOf(key), request) end
  return FIRST_REPLY
end

-- Makes it the record of this request, in progress or for a worker. What an earlier attempt has done stays done.
local function take(r, after, sweepAt, resumeAt, unknownAt)
  local isNewUse = after == AFTER_ABSENT or after == AFTER_EXPIRED
  local state = mode == ACCEPT and PENDING or IN_PROGRESS
  if isNewUse then r.progress, r.createdAt = '', now end
  if request ~= '' and (isNewUse or state == PENDING or r.kept == 0) then
    later('SET', requestKeyOf(key), request)
    r.kept = 1
  elseif isNewUse or state == PENDING then
    dropRequest(key, r)
  end
  r.state, r.after, r.onCrash, r.fingerprint, r.route = state, after, asked.onCrash, asked.fingerprint, asked.route
  r.reconcileAfterMs, r.expiresAt = asked.reconcileAfterMs, now + retentionMs
  r.tail, r.count, r.escalatedAt = '', 0, 0
  if state == PENDING then
    r.owner, r.at = '', now
  else
    r.owner, r.at, r.fence = asked.owner, now + leaseMs, r.fence + 1
  end
  put(key, r, sweepAt, resumeAt, unknownAt)
  wake(key, r)
  return state == PENDING and PENDING_REPLY or replyExecute(r)
end

-- The fence of a record that was forgotten with its tenant; 0: there was none.
local hasForgotten
local function forgottenFence()
  if hasForgotten == nil then hasForgotten = redis.call('EXISTS', forgottenKeyOf(key)) == 1 end
  return hasForgotten and tonumber(redis.call('GET', fenceKeyOf(key)) or 0) or 0
end

local function takeAgain(r, after, ...)
  local from = STATE_NAMES[r.state]
  local reply = take(r, after, ...)
  audit(key, r, from, asked.owner, after == AFTER_CRASH and takenOver or retried)
  return reply
end

local function decide(r)
  local state = r.state
  -- Past its retention a settled record is as good as gone, whatever request it was for.
  if state == GONE or state == EXPIRED or (isSettled(r) and r.expiresAt <= now) then
    -- A worker comes for something that is there. What is not, it may have looked for under the wrong name.
    if mode == CLAIM then return ABSENT_REPLY end
    return take(r, state == GONE and AFTER_ABSENT or AFTER_EXPIRED, 0, 0, 0)
  end
  -- The fingerprint comes before every state: a wrong request learns nothing and changes nothing.
  if r.fingerprint ~= asked.fingerprint then return MISMATCH_REPLY end
  if state == COMPLETED then return replyReplay(r) end
  if state == UNKNOWN then return replyUnknown(math.max(0, r.at - now), 0) end
  if state == FAILED then return takeAgain(r, AFTER_FAILED, dueTimes(r)) end
  if state == PENDING then
    -- Past its time it is about to be answered 408, and must not be executed after all.
    if mode ~= CLAIM or r.expiresAt <= now then return PENDING_REPLY end
    return take(r, AFTER_PENDING, dueTimes(r))
  end
  -- The same request sent twice, because its first answer was lost: it has what it asks for.
  if r.owner == asked.owner and mode ~= ACCEPT then
    local leaseUntil = r.at
    r.at = now + leaseMs
    put(key, r, leaseUntil, 0, 0)
    return replyExecute(r)
  end
  if r.at > now then return struct.pack('>BI6', 2, r.at - now) end
  if r.onCrash ~= RECONCILE then return takeAgain(r, AFTER_CRASH, dueTimes(r)) end
  local leaseUntil = r.at
  crash(r, crashed, now, false)
  put(key, r, leaseUntil, 0, 0)
  wake(key, r)
  audit(key, r, 'in_progress', asked.owner, crashed)
  return replyUnknown(r.reconcileAfterMs, 1)
end

-- Nobody else is served while a script runs, and it runs for as long as it takes to copy the answers that it repeats: some
-- milliseconds for these. Past them whatever is longer than most records is not read any more, and has to be asked for
-- alone. The first record never is.
local COPIED_BYTES_MAX, SHORT_BYTES, READ_AT_ONCE = 262144, 2048, 16
local copiedBytes, isFull = 0, false
local values, readFrom, readTo = {}, 1, 0
-- Whether anything was forgotten is asked with the records. Not in a cluster: there a key that is missing while its slot
-- moves would keep the others from being read.
local before = IS_CLUSTER and 0 or 1

-- A record; false: there is none; nil: it has to be asked for alone.
local function read(nth)
  if nth > readTo then
    if isFull then
      if redis.call('STRLEN', keys[nth]) > SHORT_BYTES then return nil end
      return redis.call('GET', keys[nth])
    end
    readFrom, readTo = nth, math.min(nth + READ_AT_ONCE - 1, CALLS)
    if IS_CLUSTER then
      values = redis.call('MGET', unpack(keys, readFrom, readTo))
    else
      values = redis.call('MGET', forgottenKeyOf(keys[1]), unpack(keys, readFrom, readTo))
      hasForgotten = values[1] ~= false
    end
  end
  local value = values[nth - readFrom + 1 + before]
  if not value or #value <= SHORT_BYTES then return value end
  isFull = isFull or (copiedBytes > 0 and copiedBytes + #value > COPIED_BYTES_MAX)
  if isFull then return nil end
  copiedBytes = copiedBytes + #value
  return value
end

local function answer(value)
  if value == nil then return ALONE_REPLY end
  if not value and mode == CLAIM then return ABSENT_REPLY end
  local fence = 0
  if not value and hasForgotten ~= false then fence = forgottenFence() end
  if not value and mode ~= ACCEPT and fence == 0 then return takeFirst() end
  asked = decode(kind.draft .. text)
  if value and not readable(value) then return struct.pack('>BB', 7, string.byte(value, 1)) end
  if value then return decide(decode(value)) end
  asked.state, asked.fence, asked.kept = GONE, fence, 0
  return take(asked, AFTER_ABSENT, 0, 0, 0)
end

local replies = { struct.pack('>I6', now) }
local requestAt = 1
for nth = 1, CALLS do
  key, kind, text = keys[nth], asks[nth], askedTexts[nth]
  mode, leaseMs, retentionMs, request = kind.mode, kind.leaseMs, kind.retentionMs, ''
  if kind.requestBytes > 0 then
    request = sub(requests, requestAt, requestAt + kind.requestBytes - 1)
    requestAt = requestAt + kind.requestBytes
  end
  replies[nth + 1] = answer(read(nth))
end

flush()
return table.concat(replies)
