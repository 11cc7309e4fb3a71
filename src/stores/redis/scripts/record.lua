-- What a record can become. A table of its fields stands for it meanwhile.
--
-- Input:   none
-- Output:  decode and encode, between a value and its table · readable and isSettled, which ask · expire, suspend and crash,
--          which change the table and write nothing
--#include layout
local STATE_NAMES = { 'pending', 'in_progress', 'completed', 'failed_retryable', 'unknown', 'expired' }

local RECONCILE, RESUME, RETRY = 0, 1, 2
local AFTER_ABSENT, AFTER_PENDING, AFTER_FAILED, AFTER_CRASH, AFTER_EXPIRED = 0, 1, 2, 3, 4

-- Nothing is guessed about what a newer version has written.
local function readable(value)
  return string.byte(value, 1) == VERSION
end

-- All fields at once: a table that grows field by field is made anew several times.
local function decode(value)
  local _, state, expiresAt, at, createdAt, onCrash, after, watched, kept, fence, reconcileAfterMs, escalatedAt, count,
    fingerprintBytes, ownerBytes, routeBytes, progressBytes = struct.unpack(HEAD, value)
  local ownerFrom = HEAD_BYTES + fingerprintBytes
  local routeFrom = ownerFrom + ownerBytes
  local progressFrom = routeFrom + routeBytes
  local tailFrom = progressFrom + progressBytes
  return {
    state = state, onCrash = onCrash, after = after, watched = watched, kept = kept, fence = fence,
    createdAt = createdAt, expiresAt = expiresAt, at = at, reconcileAfterMs = reconcileAfterMs,
    escalatedAt = escalatedAt, count = count,
    fingerprint = sub(value, HEAD_BYTES + 1, ownerFrom),
    owner = sub(value, ownerFrom + 1, routeFrom),
    route = routeBytes > 0 and sub(value, routeFrom + 1, progressFrom) or '',
    progress = progressBytes > 0 and sub(value, progressFrom + 1, tailFrom) or '',
    tail = sub(value, tailFrom + 1),
  }
end

local function encode(r)
  return struct.pack(
    HEAD, VERSION, r.state, r.expiresAt, r.at, r.createdAt, r.onCrash, r.after, r.watched, r.kept, r.fence,
    r.reconcileAfterMs, r.escalatedAt, r.count, #r.fingerprint, #r.owner, #r.route, #r.progress
  ) .. r.fingerprint .. r.owner .. r.route .. r.progress .. r.tail
end

-- Whether nothing is left to be done or to be found out, so that the record may go when its time is over.
local function isSettled(r)
  local state = r.state
  return state == COMPLETED or state == EXPIRED or state == GONE
    or (state == FAILED and r.at == 0 and r.progress == '')
end

-- A record past its retention, without its response.
local function expire(r)
  r.state, r.progress, r.tail, r.owner, r.at = EXPIRED, '', '', '', 0
end

-- Something that may have happened, to be asked about at `at`.
local function suspend(r, reason, at)
  r.state, r.tail, r.at, r.count, r.escalatedAt = UNKNOWN, reason, at, 0, 0
end

-- What becomes of a record whose owner is gone.
local function crash(r, reason, now, isKept)
  if r.onCrash == RECONCILE then
    suspend(r, reason, now + r.reconcileAfterMs)
  else
    r.state, r.tail, r.count = FAILED, reason, 0
    r.at = isKept and now or 0
  end
  r.owner = ''
end
