-- A record as one value: a head of fixed width, then five texts, whose lengths are in the head. record.ts reads the same.
--
--   version · state · onCrash · after (why it was last executed) · watched · kept (its request is stored) · fence
--   createdAt · expiresAt · at (the time that its state is about; 0: none) · reconcileAfterMs · escalatedAt · count
--   lengths of: fingerprint · owner · route · progress; what follows them is the tail: a reason, or the response
local HEAD = '>BBBBBBI4I6I6I6I6I6I4I2I2I2I4'
local HEAD_BYTES = 54
local VERSION = 1

local PENDING, IN_PROGRESS, COMPLETED, FAILED, UNKNOWN, EXPIRED = 1, 2, 3, 4, 5, 6
-- Deleted, and only its fence is remembered.
local GONE = 7
local STATE_NAMES = { 'pending', 'in_progress', 'completed', 'failed_retryable', 'unknown', 'expired' }

local RECONCILE, RESUME, RETRY = 0, 1, 2
local AFTER_ABSENT, AFTER_PENDING, AFTER_FAILED, AFTER_CRASH, AFTER_EXPIRED = 0, 1, 2, 3, 4

-- Nothing is guessed about what a newer version has written.
local function readable(value)
  return string.byte(value, 1) == VERSION
end

local function decode(value)
  local r = {}
  local _, fpBytes, ownerBytes, routeBytes, progressBytes
  _, r.state, r.onCrash, r.after, r.watched, r.kept, r.fence, r.createdAt, r.expiresAt, r.at, r.reconcileAfterMs,
    r.escalatedAt, r.count, fpBytes, ownerBytes, routeBytes, progressBytes = struct.unpack(HEAD, value)
  local from = HEAD_BYTES
  local sub = string.sub
  r.fingerprint = sub(value, from + 1, from + fpBytes)
  from = from + fpBytes
  r.owner = sub(value, from + 1, from + ownerBytes)
  from = from + ownerBytes
  r.route = sub(value, from + 1, from + routeBytes)
  from = from + routeBytes
  r.progress = sub(value, from + 1, from + progressBytes)
  r.tail = sub(value, from + progressBytes + 1)
  return r
end

local function encode(r)
  return struct.pack(
    HEAD, VERSION, r.state, r.onCrash, r.after, r.watched, r.kept, r.fence, r.createdAt, r.expiresAt, r.at,
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
