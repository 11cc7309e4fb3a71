-- Answers arriving requests, as src/core/decide.ts does.
--
-- Input:   KEYS     the records, each one once
--          ARGV[5]  the time after which nobody waits for these answers any more; empty: not known
--          ARGV[6]  the reasons that an audit trail gives: taken over, retried, crashed; each after its length
--          ARGV[7]  the requests in the order of KEYS: mode · onCrash · isKept · leaseMs · retentionMs · reconcileAfterMs ·
--                   lengths of fingerprint, owner, route and kept request; then these
-- Output:  the time, then one answer after the other: a code, and what belongs to it
--#include record
--#include writes

local REQUEST = '>BBBI6I6I6I2I2I2I4'
local REQUEST_BYTES = 31
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
local PENDING_REPLY, ABSENT_REPLY, MISMATCH_REPLY, LATE_REPLY = '\3', '\4', '\5', '\8'

-- Whoever asked has given up: what would be granted now would be nobody's.
if ARGV[5] ~= '' and now > tonumber(ARGV[5]) then
  return struct.pack('>I6', now) .. string.rep(LATE_REPLY, #KEYS)
end

-- The request that is being answered.
local calls, position = ARGV[7], 1
local key, mode, onCrash, isKept, leaseMs, retentionMs, reconcileAfterMs
local fingerprint, owner, route, requestFrom, requestBytes

local function takeText(bytes)
  local from = position
  position = position + bytes
  return string.sub(calls, from, position - 1)
end

-- Makes it the record of this request, in progress or for a worker. What an earlier attempt has done stays done.
local function take(r, after, sweepAt, resumeAt, unknownAt)
  local isNewUse = after == AFTER_ABSENT or after == AFTER_EXPIRED
  local state = mode == ACCEPT and PENDING or IN_PROGRESS
  if isNewUse then r.progress, r.createdAt = '', now end
  if isKept == 1 and (isNewUse or state == PENDING or r.kept == 0) then
    later('SET', requestKeyOf(key), string.sub(calls, requestFrom, requestFrom + requestBytes - 1))
    r.kept = 1
  elseif isNewUse or state == PENDING then
    dropRequest(key, r)
  end
  r.state, r.after, r.onCrash, r.fingerprint, r.route = state, after, onCrash, fingerprint, route
  r.reconcileAfterMs, r.expiresAt, r.tail, r.count, r.escalatedAt = reconcileAfterMs, now + retentionMs, '', 0, 0
  if state == PENDING then
    r.owner, r.at = '', now
  else
    r.owner, r.at, r.fence = owner, now + leaseMs, r.fence + 1
  end
  put(key, r, sweepAt, resumeAt, unknownAt)
  wake(key, r)
  return state == PENDING and PENDING_REPLY or replyExecute(r)
end

local function takeAgain(r, after, ...)
  local from = STATE_NAMES[r.state]
  local reply = take(r, after, ...)
  audit(key, r, from, owner, after == AFTER_CRASH and takenOver or retried)
  return reply
end

local function decide(value)
  if not value then
    if mode == CLAIM then return ABSENT_REPLY end
    return take({ fence = 0, watched = 0, kept = 0 }, AFTER_ABSENT, 0, 0, 0)
  end
  if not readable(value) then return struct.pack('>BB', 7, string.byte(value, 1)) end
  local r = decode(value)
  local state = r.state
  -- Past its retention a settled record is as good as gone, whatever request it was for.
  if state == GONE or state == EXPIRED or (isSettled(r) and r.expiresAt <= now) then
    -- A worker comes for something that is there. What is not, it may have looked for under the wrong name.
    if mode == CLAIM then return ABSENT_REPLY end
    return take(r, state == GONE and AFTER_ABSENT or AFTER_EXPIRED, 0, 0, 0)
  end
  -- The fingerprint comes before every state: a wrong request learns nothing and changes nothing.
  if r.fingerprint ~= fingerprint then return MISMATCH_REPLY end
  if state == COMPLETED then return replyReplay(r) end
  if state == UNKNOWN then return replyUnknown(math.max(0, r.at - now), 0) end
  if state == FAILED then return takeAgain(r, AFTER_FAILED, dueTimes(r)) end
  if state == PENDING then
    -- Past its time it is about to be answered 408, and must not be executed after all.
    if mode ~= CLAIM or r.expiresAt <= now then return PENDING_REPLY end
    return take(r, AFTER_PENDING, dueTimes(r))
  end
  -- The same request sent twice, because its first answer was lost: it has what it asks for.
  if r.owner == owner and mode ~= ACCEPT then
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
  audit(key, r, 'in_progress', owner, crashed)
  return replyUnknown(r.reconcileAfterMs, 1)
end

local values = redis.call('MGET', unpack(KEYS))
local replies = { struct.pack('>I6', now) }
for nth = 1, #KEYS do
  local fingerprintBytes, ownerBytes, routeBytes
  key = KEYS[nth]
  mode, onCrash, isKept, leaseMs, retentionMs, reconcileAfterMs, fingerprintBytes, ownerBytes, routeBytes, requestBytes =
    struct.unpack(REQUEST, calls, position)
  position = position + REQUEST_BYTES
  fingerprint, owner, route = takeText(fingerprintBytes), takeText(ownerBytes), takeText(routeBytes)
  requestFrom = position
  position = position + requestBytes
  replies[nth + 1] = decide(values[nth])
end

flush()
return table.concat(replies)
