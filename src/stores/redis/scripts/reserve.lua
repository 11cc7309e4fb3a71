-- Answers arriving requests, as src/core/decide.ts does.
--
-- Input:   KEYS     the records, each one once
--          ARGV[5]  the time after which nobody waits for these answers any more; empty: not known
--          ARGV[6]  the reasons that an audit trail gives: taken over, retried, crashed; each after its length
--          ARGV[7]  the requests in the order of KEYS: mode · leaseMs · retentionMs · lengths of draft and kept request; then
--                   these. The draft is the record of a first attempt as record.lua lays it out, behind its times.
-- Output:  the time, then one answer after the other: a code, and what belongs to it
--#include record
--#include writes

local REQUEST = '>BI6I6I4I4'
local REQUEST_BYTES = 21
local ACCEPT, CLAIM = 1, 2
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
local FIRST_REPLY = struct.pack('>BBI4I6I4', 0, AFTER_ABSENT, 1, now, 0)
local PENDING_REPLY, ABSENT_REPLY, MISMATCH_REPLY, LATE_REPLY, ALONE_REPLY = '\3', '\4', '\5', '\8', '\9'

-- Whoever asked has given up: what would be granted now would be nobody's.
if ARGV[5] ~= '' and now > tonumber(ARGV[5]) then
  return struct.pack('>I6', now) .. string.rep(LATE_REPLY, RECORDS)
end

-- The request that is being answered.
local key, mode, leaseMs, retentionMs, draft, request, asked

-- A first attempt at a key that nobody has used: its draft, with the times.
local function takeFirst()
  local leaseUntil = now + leaseMs
  setForGood(key, string.char(VERSION, IN_PROGRESS) .. struct.pack('>I6I6I6', now + retentionMs, leaseUntil, now) .. draft)
  index('@sweep', tagOf(key), nameOf(key), leaseUntil)
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
      if redis.call('STRLEN', KEYS[nth]) > SHORT_BYTES then return nil end
      return redis.call('GET', KEYS[nth])
    end
    readFrom, readTo = nth, math.min(nth + READ_AT_ONCE - 1, RECORDS)
    if IS_CLUSTER then
      values = redis.call('MGET', unpack(KEYS, readFrom, readTo))
    else
      values = redis.call('MGET', forgottenKeyOf(KEYS[1]), unpack(KEYS, readFrom, readTo))
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
  asked = decode(string.rep('\0', TIMES_BYTES) .. draft)
  if value and not readable(value) then return struct.pack('>BB', 7, string.byte(value, 1)) end
  if value then return decide(decode(value)) end
  asked.state, asked.fence, asked.kept = GONE, fence, 0
  return take(asked, AFTER_ABSENT, 0, 0, 0)
end

local replies = { struct.pack('>I6', now) }
local calls, position = ARGV[7], 1
for nth = 1, RECORDS do
  local draftBytes, requestBytes
  key = KEYS[nth]
  mode, leaseMs, retentionMs, draftBytes, requestBytes = struct.unpack(REQUEST, calls, position)
  local draftFrom = position + REQUEST_BYTES
  position = draftFrom + draftBytes + requestBytes
  draft = sub(calls, draftFrom, draftFrom + draftBytes - 1)
  request = requestBytes > 0 and sub(calls, draftFrom + draftBytes, position - 1) or ''
  replies[nth + 1] = answer(read(nth))
end

flush()
return table.concat(replies)
